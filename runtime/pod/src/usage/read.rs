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

/// How long reading a VMM's usage from the kernel may take.
const READ_WITHIN: Duration = Duration::from_secs(10);

/// The sources for the usage of a pod's VM on the node.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HostSource<'a> {
    pub(crate) pod: &'a PodView,
    pub(crate) live: &'a Live,
    pub(crate) cgroup_root: &'a Path,
    pub(crate) kernel: &'a Pool,
}

/// The sources for a pod's usage.
#[derive(Debug)]
pub(crate) struct UsageSource<'a> {
    pub(crate) host: HostSource<'a>,
    pub(crate) containers: Known,
}

/// A pod's current usage. For a guest that does not answer in time, its last answer is used.
pub(crate) async fn read(source: UsageSource<'_>) -> Result<PodUsage, PodError> {
    let HostSource { pod, .. } = source.host;
    let meter = &source.host.live.meter;
    let guest = meter.guest(&source.host.live.agent, source.containers);
    let (host, guest) = tokio::join!(read_host(source.host), guest);
    Ok(PodUsage { pod_id: pod.id.clone(), host: host?, guest })
}

/// The current usage of the node by the pod's VM.
pub(crate) async fn read_host(source: HostSource<'_>) -> Result<HostUsage, PodError> {
    let HostSource { pod, live, cgroup_root, kernel } = source;
    let cgroups = cgroup::paths(cgroup_root, &pod.spec.cgroup_parent, &pod.id);
    let (root, vmm_pid) = (cgroup_root.to_owned(), live.vm.pid());
    let reading = move || Ok::<_, std::io::Error>(host::read(&root, &cgroups, vmm_pid));
    let mut usage = blocking_within(READ_WITHIN, kernel, "reading the VMM's usage", reading).await?;
    live.meter.rate_host(&mut usage);
    Ok(usage)
}
