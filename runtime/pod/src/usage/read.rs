//! Reads the usage of one pod: its VMM's on the host, its containers' in the guest.

use std::path::Path;
use std::time::Duration;

use runtime_blocking::Pool;

use super::figures::{HostUsage, PodUsage};
use super::host;
use super::meter::Known;
use crate::blocking::blocking_within;
use crate::error::PodError;
use crate::host::cgroup;
use crate::live::Live;
use crate::view::PodView;

/// How long the kernel may take to say what a VMM uses.
const READ_WITHIN: Duration = Duration::from_secs(10);

/// Where the figures of a pod's VM on the node come from.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HostSource<'a> {
    pub(crate) pod: &'a PodView,
    pub(crate) live: &'a Live,
    pub(crate) cgroup_root: &'a Path,
    pub(crate) kernel: &'a Pool,
}

/// Where a pod's figures come from.
#[derive(Debug)]
pub(crate) struct UsageSource<'a> {
    pub(crate) host: HostSource<'a>,
    pub(crate) containers: Known,
}

/// A pod's figures now. A guest that does not answer in time is shown with its last answer.
pub(crate) async fn read(source: UsageSource<'_>) -> Result<PodUsage, PodError> {
    let HostSource { pod, .. } = source.host;
    let meter = &source.host.live.meter;
    let guest = meter.guest(&source.host.live.agent, source.containers);
    let (host, guest) = tokio::join!(read_host(source.host), guest);
    Ok(PodUsage { pod_id: pod.id.clone(), host: host?, guest })
}

/// What the pod's VM takes of the node now.
pub(crate) async fn read_host(source: HostSource<'_>) -> Result<HostUsage, PodError> {
    let HostSource { pod, live, cgroup_root, kernel } = source;
    let cgroups = cgroup::paths(cgroup_root, &pod.spec.cgroup_parent, &pod.id);
    let (root, vmm_pid) = (cgroup_root.to_owned(), live.vm.pid());
    let reading = move || Ok::<_, std::io::Error>(host::read(&root, &cgroups, vmm_pid));
    let mut usage = blocking_within(READ_WITHIN, kernel, "reading the VMM's usage", reading).await?;
    live.meter.rate_host(&mut usage);
    Ok(usage)
}
