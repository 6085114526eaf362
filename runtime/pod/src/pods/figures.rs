//! Usage and statistics of pods.

use std::convert::Infallible;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use proto_agent::agent::{ClockReference, ClockStats};

use super::Pods;
use crate::blocking::blocking_within;
use crate::device_counts::{self, DeviceCounts};
use crate::error::PodError;
use crate::host::scratch::{self, ScratchUsage};
use crate::installation::Installed;
use crate::live::Live;
use crate::usage::{self, HostSource, HostUsage, Known, PodUsage, UsageSource};
use crate::view::{GuestClock, GuestMemory, Phase, PodView, VmReport};

/// How long the agent may take to report its memory, beside numbers available without an agent; and how long
/// a pod's recovery may take before its statistics are given up.
const STATS_WITHIN: Duration = Duration::from_secs(2);

/// How long reading the installation's files may take: a few bytes of each.
const LOOKED_AT_WITHIN: Duration = Duration::from_secs(3);

impl Pods {
    /// The measured steps of the pod's start.
    ///
    /// # Errors
    /// No such pod.
    pub fn phases(&self, pod_id: &str) -> Result<Vec<Phase>, PodError> {
        Ok(self.pod_entry(pod_id)?.phases.to_vec())
    }

    /// Returns the costs of the pod's VM.
    ///
    /// # Errors
    /// No such pod, or its VM is gone.
    pub async fn vm_stats(&self, pod_id: &str) -> Result<VmReport, PodError> {
        let live = self.live_soon(pod_id).await?;
        let stats = live.call("asking the VM for its counters", live.vm.stats()).await?;
        let asked = tokio::time::timeout(STATS_WITHIN, live.agent.stats()).await;
        let asked = asked.ok().and_then(Result::ok);
        let clock = asked.as_ref().and_then(|stats| stats.clock.as_ref()).map(guest_clock);
        let guest = asked.map(|memory| GuestMemory {
            total: memory.memory_total,
            available: memory.memory_available,
            free: memory.memory_free,
            agent_resident: memory.agent_resident,
            processes: memory.processes,
        });
        Ok(VmReport { vmm_pid: live.vm.pid(), stats, guest, clock })
    }

    /// Returns the device counters of several pods, by device kind. Pods are asked in parallel. Pods without
    /// a VM, pods not yet recovered, and pods with a VMM that does not answer within a moment are left out.
    pub async fn device_counts(&self, pod_ids: impl IntoIterator<Item = &str>) -> Vec<DeviceCounts> {
        let live = pod_ids.into_iter().filter_map(|id| self.live_now(id).ok());
        let asking = live.map(async |live| tokio::time::timeout(STATS_WITHIN, live.vm.stats()).await);
        let answers = futures::future::join_all(asking).await.into_iter().flatten().flatten();
        device_counts::by_kind(&answers.flat_map(|stats| stats.devices).collect::<Vec<_>>())
    }

    /// Returns the current installation, for comparison with pods' VMs.
    ///
    /// # Errors
    /// The disk does not answer.
    pub async fn installed(&self) -> Result<Installed, PodError> {
        let places = self.node.places.clone();
        let look = move || Ok::<_, Infallible>(places.part_files().look());
        let (pool, doing) = (&self.node.pools.paths, "looking at the installed files");
        blocking_within(LOOKED_AT_WITHIN, pool, doing, look).await
    }

    /// Returns the pod's usage.
    ///
    /// # Errors
    /// No such pod, its VM is gone, or it is not recovered within a moment after the daemon's start. An
    /// unresponsive guest is no error.
    pub async fn usage(&self, pod_id: &str) -> Result<PodUsage, PodError> {
        let live = self.live_soon(pod_id).await?;
        let entry = self.pod_entry(pod_id)?;
        let containers = self.node.roster.known_of(&entry.view.id);
        self.usage_of(&entry.view, &live, containers).await
    }

    /// The pod's VM, as soon as the pod is recovered, and within a moment.
    async fn live_soon(&self, pod_id: &str) -> Result<Live, PodError> {
        match tokio::time::timeout(STATS_WITHIN, self.live(pod_id)).await {
            Ok(live) => live,
            Err(_) => self.live_now(pod_id),
        }
    }

    async fn usage_of(&self, pod: &PodView, live: &Live, containers: Known) -> Result<PodUsage, PodError> {
        usage::read(UsageSource { host: self.on_host(pod, live), containers }).await
    }

    fn on_host<'a>(&'a self, pod: &'a PodView, live: &'a Live) -> HostSource<'a> {
        HostSource { pod, live, cgroup_root: &self.node.places.cgroup_root, kernel: &self.node.pools.kernel }
    }

    /// Returns the usage of several pods, read in parallel. Pods without a VM, or not recovered yet, are left
    /// out. A hanging guest delays the answer only for a moment.
    pub async fn usages(&self, pod_ids: impl IntoIterator<Item = &str>) -> Vec<PodUsage> {
        let known = self.node.roster.known();
        let reading = pod_ids.into_iter().filter_map(|id| {
            let (pod, live) = self.pod_now(id)?;
            let containers = known.get(&pod.id).cloned().unwrap_or_default();
            Some(async move { self.usage_of(&pod, &live, containers).await })
        });
        futures::future::join_all(reading).await.into_iter().flatten().collect()
    }

    /// Returns the usage of several pods' VMs on the node, without asking their guests. Pods without a VM, or
    /// not recovered yet, are left out.
    pub async fn usages_on_host(&self, pod_ids: impl IntoIterator<Item = &str>) -> Vec<HostUsage> {
        let reading = pod_ids.into_iter().filter_map(|id| {
            let (pod, live) = self.pod_now(id)?;
            Some(async move { usage::read_host(self.on_host(&pod, &live)).await })
        });
        futures::future::join_all(reading).await.into_iter().flatten().collect()
    }

    /// The pod with its VM, if already known.
    fn pod_now(&self, pod_id: &str) -> Option<(Arc<PodView>, Live)> {
        let entry = self.node.roster.pod(pod_id)?;
        Some((entry.view, entry.live?))
    }

    /// Returns the space used by the pods' scratch disks on the host's file system. Blocks on the disk.
    pub fn scratch_usage(&self) -> ScratchUsage {
        scratch::usage(&self.node.places.state_dirs())
    }

    /// The directory of the scratch disks.
    pub fn scratch_dir(&self) -> PathBuf {
        self.node.places.state_dirs()
    }
}

/// A guest's clock, as its agent reports it.
fn guest_clock(clock: &ClockStats) -> GuestClock {
    let reference = match clock.reference.enum_value_or_default() {
        ClockReference::CLOCK_REFERENCE_UNSPECIFIED => "none",
        ClockReference::CLOCK_REFERENCE_PTP_KVM => "ptp_kvm",
        ClockReference::CLOCK_REFERENCE_MESSAGES => "messages",
    };
    let ClockStats { offset_ns, error_ns, rate_ppb, steps, .. } = *clock;
    GuestClock { reference, offset_ns, error_ns, rate_ppb, steps }
}
