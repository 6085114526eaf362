//! The size of a pod's VM, the host CPUs it runs on, and its part of the node's swap.
//!
//! Only [`Capacity`] knows the pod's limits, the last size requested of the VM, its CPUs and its swap.
//! The containers' limits stay with the containers and come as arguments of each call. The ledger in
//! `runtime-spec` decides each one's share; `resize.rs` applies a new size.

pub(crate) mod awaited_room;
mod resize;
pub(crate) mod room;
mod swap;

use runtime_spec::{Ledger, PodSpec, Resources, VmBounds, VmSize};

pub(crate) use self::resize::Resize;
use crate::error::PodError;
use crate::host::cgroup::SwapMax;
use crate::live::Live;
use crate::node::Node;
use crate::record::{CapacityStatus, PodRecord};

/// The limits of one container, by its id.
pub(crate) type Limits<'a> = (&'a str, &'a Resources);

/// A pod's share of the node.
#[derive(Debug)]
pub(crate) struct Capacity {
    bounds: VmBounds,
    /// The pod's own limits as its spec has them.
    spec: PodLimits,
    status: CapacityStatus,
    /// CPUs of the VMM and its share; empty for no binding.
    pinned: Vec<u32>,
    /// The VMM's OOM score, if this daemon has set one for containers.
    oom_score: Option<i32>,
    /// The bound of the VM's swap, if this daemon has set one for containers.
    swap_max: Option<SwapMax>,
}

/// A pod's own limits.
#[derive(Clone, Debug, Default)]
pub(crate) struct PodLimits {
    pub(crate) resources: Option<Resources>,
    pub(crate) overhead: Option<Resources>,
}

impl Capacity {
    /// The capacity of a pod on record. Nothing is bound to CPUs yet.
    pub(crate) fn new(record: &PodRecord, status: CapacityStatus) -> Capacity {
        let PodSpec { resources, overhead, .. } = record.spec.clone();
        let spec = PodLimits { resources, overhead };
        let pinned = Vec::new();
        Capacity { bounds: record.bounds, spec, status, pinned, oom_score: None, swap_max: None }
    }

    /// The persistent part.
    pub(crate) fn status(&self) -> &CapacityStatus {
        &self.status
    }

    /// Calculates the ledger with `image_bytes` of images and these containers.
    pub(crate) fn ledger<'a>(
        &self,
        images_bytes: u64,
        containers: impl IntoIterator<Item = Limits<'a>>,
    ) -> Ledger {
        Ledger::draw(&self.bounds, self.resources(), self.overhead(), images_bytes, containers)
    }

    /// Changes the pod's own limits as far as the update sets them, and returns the old ones.
    pub(crate) fn update(&mut self, resources: &Resources, overhead: &Resources) -> PodLimits {
        let merged = |old: Option<&Resources>, new| Some(old.cloned().unwrap_or_default().merged(new));
        let resources = merged(self.resources(), resources);
        let overhead = merged(self.overhead(), overhead);
        self.restore(PodLimits { resources, overhead })
    }

    /// Sets the changes of the pod's own limits, and returns those before.
    pub(crate) fn restore(&mut self, limits: PodLimits) -> PodLimits {
        PodLimits {
            resources: std::mem::replace(&mut self.status.resources, limits.resources),
            overhead: std::mem::replace(&mut self.status.overhead, limits.overhead),
        }
    }

    /// The pod's limits as they are now.
    pub(crate) fn resources(&self) -> Option<&Resources> {
        self.status.resources.as_ref().or(self.spec.resources.as_ref())
    }

    /// The pod's overhead as it is now.
    pub(crate) fn overhead(&self) -> Option<&Resources> {
        self.status.overhead.as_ref().or(self.spec.overhead.as_ref())
    }

    /// Takes on how much memory the pod's cgroup allows now.
    pub(crate) fn set_room(&mut self, bytes: Option<u64>) {
        self.bounds.room = bytes;
    }

    /// The last size requested of the VM.
    pub(crate) fn size(&self) -> VmSize {
        self.status.size.unwrap_or(self.bounds.boot)
    }

    /// The smallest size of at least `wanted` that takes nothing away.
    pub(crate) fn grown(&self, wanted: VmSize) -> VmSize {
        let now = self.size();
        VmSize { memory_bytes: now.memory_bytes.max(wanted.memory_bytes), vcpus: now.vcpus.max(wanted.vcpus) }
    }

    /// Notes the newly requested size of the VM, and returns the work; `None` if there is none. The note must
    /// be on disk before the work begins.
    pub(crate) fn resize(&mut self, wanted: VmSize) -> Option<Resize> {
        let (from, boot) = (self.size(), self.bounds.boot);
        // A VM never has less memory than it booted with.
        let to = VmSize { memory_bytes: wanted.memory_bytes.max(boot.memory_bytes), ..wanted };
        if to == from {
            return None;
        }
        self.status.size = Some(to);
        Some(Resize { from, to, boot })
    }

    /// The work to give the VM its size on record; `None` if it still has its size from boot. If a daemon was
    /// killed between its note and the work, the VM has another size.
    pub(crate) fn resize_again(&self) -> Option<Resize> {
        let to = self.status.size?;
        Some(Resize { from: to, to, boot: self.bounds.boot })
    }

    /// Binds the VM as these containers ask.
    pub(crate) async fn pin<'a>(
        &mut self,
        live: &Live,
        containers: impl IntoIterator<Item = Limits<'a>>,
    ) -> Result<(), PodError> {
        let cpus = cpus(containers);
        if cpus == self.pinned {
            return Ok(());
        }
        live.vm.pin(&cpus).await.map_err(|error| error.during("linux.cpuset_cpus"))?;
        self.pinned = cpus;
        Ok(())
    }

    /// Sets the VMM's OOM score on the node for these containers.
    pub(crate) async fn set_oom_score<'a>(
        &mut self,
        live: &Live,
        containers: impl IntoIterator<Item = Limits<'a>>,
    ) -> Result<(), PodError> {
        let score = oom_score(containers);
        if let Some(score) = score.filter(|_| score != self.oom_score) {
            let set = live.vm.set_oom_score(score).await;
            set.map_err(|error| error.during("setting the VMM's OOM score"))?;
            self.oom_score = Some(score);
        }
        Ok(())
    }

    /// Bounds how much the node may swap of the VM, as these containers ask.
    pub(crate) async fn limit_swap<'a>(
        &mut self,
        node: &Node,
        record: &PodRecord,
        containers: impl IntoIterator<Item = Limits<'a>>,
    ) -> Result<(), PodError> {
        let max = swap::bound(containers.into_iter().map(|(_, resources)| resources));
        if let Some(max) = max.filter(|_| max != self.swap_max) {
            swap::set(node, record, max).await?;
            self.swap_max = Some(max);
        }
        Ok(())
    }
}

/// The least OOM score of a VMM. A VMM at -1000, never killed by the kernel, would stand still in a full
/// cgroup.
const OOM_SCORE_MIN: i64 = -999;

/// The VMM's OOM score: the lowest of its containers', so each of them is at least as safe as requested.
/// `None` without containers: the VMM keeps its score.
fn oom_score<'a>(containers: impl IntoIterator<Item = Limits<'a>>) -> Option<i32> {
    let scores = containers.into_iter().map(|(_, resources)| resources.oom_score_adj);
    // The specs were checked when they came.
    scores.min().and_then(|score| i32::try_from(score.max(OOM_SCORE_MIN)).ok())
}

/// CPUs for the VMM and its share; empty for all.
///
/// CPUs chosen by the kubelet's CPU manager are the node's, and mean nothing inside the guest. So the VM runs
/// on the CPUs of all its containers together, as soon as each container names some. The guest's scheduler
/// divides them among the pod's containers. Its devices run there too: all other CPUs may be another pod's
/// alone.
fn cpus<'a>(containers: impl IntoIterator<Item = Limits<'a>>) -> Vec<u32> {
    runtime_spec::cpus_together(containers.into_iter().map(|(_, resources)| resources))
}

#[cfg(test)]
mod tests {
    use runtime_spec::LayerLimits;

    use super::*;
    use crate::host::memory_events::MemoryEventsBefore;

    fn size(mib: u64, vcpus: u8) -> VmSize {
        VmSize { memory_bytes: mib << 20, vcpus }
    }

    fn capacity() -> Capacity {
        let bounds = VmBounds { boot: size(128, 1), most: size(1024, 4), ..VmBounds::default() };
        let spec = PodSpec::default();
        let layer_limits = LayerLimits::default();
        let id = "p".into();
        let record = PodRecord {
            id,
            spec,
            handler: "kvm".into(),
            bounds,
            scratch_bytes: 0,
            layer_limits,
            memory_events_before: MemoryEventsBefore::default(),
            created_at_ns: 1,
        };
        Capacity::new(&record, CapacityStatus::default())
    }

    fn bound(cpus: &str) -> Resources {
        Resources { cpuset_cpus: cpus.into(), ..Resources::default() }
    }

    #[test]
    fn a_vm_grows_by_what_is_wanted_and_never_shrinks_below_its_boot() {
        let mut capacity = capacity();
        assert_eq!(capacity.grown(size(64, 3)), size(128, 3));
        let resize = capacity.resize(size(256, 2)).unwrap();
        assert_eq!((resize.from, resize.to), (size(128, 1), size(256, 2)));
        assert!(capacity.resize(size(256, 2)).is_none());
        assert_eq!(capacity.resize(size(1, 1)).unwrap().to, size(128, 1));
        assert_eq!(capacity.status().size, Some(size(128, 1)));
    }

    #[test]
    fn an_update_changes_what_it_sets_and_can_be_taken_back() {
        let mut capacity = capacity();
        let memory = |mib: i64| Resources { memory_limit_bytes: mib << 20, ..Resources::default() };
        let before = capacity.update(&memory(100), &memory(10));
        capacity.update(&Resources { cpu_quota: 5000, ..Resources::default() }, &Resources::default());
        let now = capacity.status().resources.clone().unwrap();
        assert_eq!((now.memory_limit_bytes, now.cpu_quota), (100 << 20, 5000));
        capacity.restore(before);
        assert_eq!(capacity.status().resources, None);
    }

    #[test]
    fn the_vmm_is_as_safe_as_the_safest_of_its_containers() {
        let score = |score| Resources { oom_score_adj: score, ..Resources::default() };
        let (burstable, guaranteed) = (score(850), score(-997));
        assert_eq!(oom_score([("a", &burstable)]), Some(850));
        assert_eq!(oom_score([("a", &burstable), ("b", &guaranteed)]), Some(-997));
        assert_eq!(oom_score([("a", &score(-1000))]), Some(-999));
        assert_eq!(oom_score([]), None);
    }

    #[test]
    fn a_vm_is_bound_once_every_container_names_cpus() {
        let (first, second, free) = (bound("2-3"), bound("3,5"), Resources::default());
        assert_eq!(cpus([("a", &first), ("b", &second)]), [2, 3, 5]);
        assert!(cpus([("a", &first), ("c", &free)]).is_empty());
        assert!(cpus([]).is_empty());
    }
}
