//! Reads the usage of one pod: its VMM's on the host, its containers' in the guest.

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use runtime_blocking::Pool;

use super::figures::{HostUsage, PodUsage};
use super::host;
use super::meter::Meter;
use crate::backend::Agent;
use crate::blocking::blocking_within;
use crate::error::PodError;
use crate::host::cgroup;
use crate::view::PodView;

/// How long the kernel may take to say what a VMM uses.
const READ_WITHIN: Duration = Duration::from_secs(10);

/// Where a pod's figures come from.
#[derive(Debug)]
pub(crate) struct UsageSource<'a> {
    pub(crate) pod: &'a PodView,
    /// Ids of the pod's containers.
    pub(crate) containers: HashSet<String>,
    pub(crate) cgroup_root: &'a Path,
    pub(crate) kernel: &'a Pool,
    pub(crate) vmm_pid: u32,
    pub(crate) agent: &'a Arc<dyn Agent>,
    pub(crate) meter: &'a Arc<Meter>,
}

/// A pod's figures now. A guest that does not answer in time is shown with its last answer.
pub(crate) async fn read(source: UsageSource<'_>) -> Result<PodUsage, PodError> {
    let UsageSource { pod, containers, cgroup_root, kernel, vmm_pid, agent, meter } = source;
    let paths = cgroup::paths(cgroup_root, &pod.spec.cgroup_parent, &pod.id);
    let host = of_host(kernel, cgroup_root.to_owned(), paths, vmm_pid, meter);
    let (host, guest) = tokio::join!(host, meter.guest(agent, containers));
    Ok(PodUsage { pod_id: pod.id.clone(), host: host?, guest })
}

async fn of_host(
    kernel: &Pool,
    root: PathBuf,
    cgroups: Vec<PathBuf>,
    vmm_pid: u32,
    meter: &Meter,
) -> Result<HostUsage, PodError> {
    let reading = move || Ok::<_, std::io::Error>(host::read(&root, &cgroups, vmm_pid));
    let mut usage = blocking_within(READ_WITHIN, kernel, "reading the VMM's usage", reading).await?;
    meter.rate_host(&mut usage);
    Ok(usage)
}
