//! The ledger of a pod's VM: one calculation from the requests of the pod and its containers, used for the
//! VM's size, the containers' shares, reports and metrics.
//!
//! ```text
//!  containers' memory, with a pod limit:  max(the pod's limit, the largest container's)
//!                      without one:       max(the handler's default, the sum of the containers')
//!                      and the handler's default once on top for containers without a limit
//!                      (without a pod limit: within that sum); it is a wish, cut where the VM would be
//!                      larger than its handler allows
//!  needed    = containers' memory + (overhead as sent, else the guest's with its kernel)
//!              + page structures of the images, 1/64, beyond those covered by the overhead
//!  VM memory = needed + page structures of the VM's memory, 1/64   rounded up to MEMORY_GRAIN
//!              at most the limit of the pod's cgroup on the node, less the VMM's own
//!  vCPUs     = the pod's quota, or a container's larger one, rounded up; all of the VM's
//!              if the pod or a container has no quota;
//!              at most the CPUs of the node named by all containers together, if each names some
//! ```
//!
//! The pod's limit is not the sum of its containers' limits. The kubelet's value has the larger of init and
//! main containers. With a limit for the whole pod, each container's own limit is the pod's (kubelet
//! `getMemoryLimit`). The kubelet leaves a container without a limit out of the sum, so such a container
//! would find no room.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::sizing::{
    CPU_PERIOD, beyond, containers_memory, fitting, grown_memory, image_structs, memory_overhead,
    memory_structs, positive, quota_cpus,
};
use crate::{Resources, SpecError, VmBounds, VmSize, cpus_together};

/// The VM's size, and the share of each container.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Ledger {
    /// Current target size of the VM.
    pub size: VmSize,
    /// Memory in bytes wanted for the VM, if its pod's cgroup on the node were large enough.
    pub wanted_bytes: u64,
    /// Size of the VM at boot.
    pub boot: VmSize,
    /// Size up to which the VM may grow.
    pub most: VmSize,
    /// Part of the memory for the guest itself.
    pub overhead_bytes: u64,
    /// Part of the memory for the containers.
    pub containers_bytes: u64,
    /// Part of the memory for the kernel's page structures: of the memory itself, and of images beyond those
    /// covered by the overhead.
    pub page_structs_bytes: u64,
    /// Bytes of the images in the VM.
    pub images_bytes: u64,
    /// Shares by container id.
    pub containers: BTreeMap<String, Grant>,
}

/// Share of one container.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Grant {
    /// Memory limit in bytes. `None` for all the memory left by the others.
    pub memory_bytes: Option<u64>,
    /// CPU limit in thousandths of a CPU. `None` for all the CPU time left by the others.
    pub cpu_milli: Option<u64>,
}

impl Ledger {
    /// Calculates the ledger for a VM built for `bounds`, with images of so many bytes, and for the
    /// containers still alive.
    pub fn draw<'a>(
        bounds: &VmBounds,
        pod: Option<&Resources>,
        overhead: Option<&Resources>,
        images_bytes: u64,
        containers: impl IntoIterator<Item = (&'a str, &'a Resources)>,
    ) -> Ledger {
        let alive: Vec<(&str, &Resources)> = containers.into_iter().collect();
        let cpus = cpus_together(alive.iter().map(|(_, resources)| *resources));
        let containers: BTreeMap<String, Grant> =
            alive.into_iter().map(|(id, resources)| (id.to_owned(), grant(resources))).collect();
        let limits: Vec<Option<u64>> = containers.values().map(|grant| grant.memory_bytes).collect();
        let limit = positive(pod.map(|r| r.memory_limit_bytes));
        let overhead_bytes = memory_overhead(overhead, bounds.kernel);
        let containers_bytes = containers_memory(limit, bounds.memory_default, &limits);
        let wished = containers_bytes.saturating_add(overhead_bytes);
        let limited: Vec<Option<u64>> = limits.into_iter().filter(Option::is_some).collect();
        let asked = containers_memory(limit, bounds.memory_default, &limited).saturating_add(overhead_bytes);
        let image_structs = image_structs(images_bytes);
        let boot = bounds.boot.memory_bytes;
        // Images and containers without a limit do not take a VM beyond its bounds. Images' structures come
        // out of the guest's page cache then, and such containers share what there is.
        let most = bounds.most.memory_bytes.max(grown_memory(boot, asked));
        let wanted_bytes = grown_memory(boot, wished.saturating_add(image_structs)).min(most);
        let memory_bytes = wanted_bytes.min(bounds.room.map_or(u64::MAX, fitting));
        let vcpus = vcpus(pod, &containers, &cpus);
        let vcpus = vcpus.map_or(bounds.most.vcpus, |cpus| cpus.clamp(1, bounds.most.vcpus));
        Ledger {
            size: VmSize { memory_bytes, vcpus },
            wanted_bytes,
            boot: bounds.boot,
            most: bounds.most,
            overhead_bytes,
            containers_bytes,
            page_structs_bytes: memory_structs(boot, memory_bytes).saturating_add(image_structs),
            images_bytes,
            containers,
        }
    }

    /// Refuses a size beyond the VM's bounds. `field` is the requesting field.
    ///
    /// # Errors
    /// A refusal with both numbers.
    pub fn check(&self, field: &'static str) -> Result<(), SpecError> {
        if self.wanted_bytes > self.most.memory_bytes {
            return Err(beyond(field, self.wanted_bytes, self.most.memory_bytes));
        }
        Ok(())
    }
}

fn grant(resources: &Resources) -> Grant {
    let period = positive(Some(resources.cpu_period)).unwrap_or(CPU_PERIOD);
    let quota = positive(Some(resources.cpu_quota));
    Grant {
        memory_bytes: positive(Some(resources.memory_limit_bytes)),
        cpu_milli: quota.map(|quota| quota.saturating_mul(1000).div_ceil(period)),
    }
}

/// vCPUs enough for these limits, and no more than `cpus` of the node, unless it is empty. `None` without a
/// bound. More vCPUs than CPUs would only wait for each other. A kubelet sets no quota for exclusive CPUs.
fn vcpus(pod: Option<&Resources>, containers: &BTreeMap<String, Grant>, cpus: &[u32]) -> Option<u8> {
    let bounded = |most: u64| u8::try_from(most).unwrap_or(u8::MAX);
    let on_the_node = (!cpus.is_empty()).then_some(bounded(cpus.len() as u64));
    quotas(pod, containers).map(bounded).into_iter().chain(on_the_node).min()
}

/// The largest quota in CPUs; `None` if the pod or a container has none.
fn quotas(pod: Option<&Resources>, containers: &BTreeMap<String, Grant>) -> Option<u64> {
    let pod = pod.and_then(|r| quota_cpus(r.cpu_quota, r.cpu_period))?;
    containers.values().try_fold(pod, |most, grant| Some(most.max(grant.cpu_milli?.div_ceil(1000))))
}
