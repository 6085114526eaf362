//! The ledger of a pod's machine: one calculation from what the pod and its containers ask, used for the
//! VM's size, the containers' shares, reports and metrics.
//!
//! ```text
//!  containers' memory, where the pod has a limit:  max(the pod's limit, the largest container's)
//!                      where it has none:          max(the handler's default, the sum of the containers')
//!                      and once the handler's default on top for those without a limit
//!                      (where the pod has none: within that sum)
//!  VM memory = containers' memory + (overhead as sent, else GUEST_OVERHEAD)   rounded up to MEMORY_GRAIN
//!  vCPUs     = the pod's quota, or a container's larger one, rounded up; all that the VM has
//!              where the pod or a container has no quota
//! ```
//!
//! Why the pod's limit is not the sum of the containers': the kubelet's has the larger of init and main
//! containers, and with a limit for the whole pod each container's own is that (kubelet
//! `getMemoryLimit`). A container without a limit in a pod with one is one that the kubelet left out of
//! the sum, and that would find no room.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::size::{beyond, machine_memory};
use crate::{Resources, SpecError, VmBounds, VmSize};

/// What the guest kernel, the agent and page tables take, in bytes, where no overhead is sent.
pub(crate) const GUEST_OVERHEAD: u64 = 48 << 20;

/// Who gets what.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Ledger {
    /// What the machine should have now.
    pub size: VmSize,
    /// What it booted with.
    pub boot: VmSize,
    /// What it may grow to.
    pub most: VmSize,
    /// Of its memory: for the guest itself.
    pub overhead_bytes: u64,
    /// Of its memory: for the containers.
    pub containers_bytes: u64,
    /// By id.
    pub containers: BTreeMap<String, Grant>,
}

/// What one container may use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Grant {
    /// Bytes; `None`: whatever the others leave.
    pub memory_bytes: Option<u64>,
    /// Thousandths of a CPU; the same.
    pub cpu_milli: Option<u64>,
}

impl Ledger {
    /// Draws it up for a machine built for `bounds` and containers that have not ended.
    pub fn draw<'a>(
        bounds: &VmBounds,
        pod: Option<&Resources>,
        overhead: Option<&Resources>,
        containers: impl IntoIterator<Item = (&'a str, &'a Resources)>,
    ) -> Ledger {
        let containers: BTreeMap<String, Grant> =
            containers.into_iter().map(|(id, resources)| (id.to_owned(), grant(resources))).collect();
        let limits: Vec<Option<u64>> = containers.values().map(|grant| grant.memory_bytes).collect();
        let limit = positive(pod.map(|r| r.memory_limit_bytes));
        let overhead_bytes = memory_overhead(overhead);
        let containers_bytes = containers_memory(limit, bounds.memory_default, &limits);
        let vcpus =
            vcpus(pod, &containers).map_or(bounds.most.vcpus, |cpus| cpus.clamp(1, bounds.most.vcpus));
        Ledger {
            size: VmSize { memory_bytes: machine_memory(containers_bytes, overhead_bytes), vcpus },
            boot: bounds.boot,
            most: bounds.most,
            overhead_bytes,
            containers_bytes,
            containers,
        }
    }

    /// Refuses what the machine can never have; `field` is the one that asked for it.
    ///
    /// # Errors
    /// With both numbers.
    pub fn check(&self, field: &'static str) -> Result<(), SpecError> {
        if self.size.memory_bytes > self.most.memory_bytes {
            return Err(beyond(field, self.size.memory_bytes, self.most.memory_bytes));
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

/// Memory for containers with these limits.
pub(crate) fn containers_memory(pod: Option<u64>, default: u64, limits: &[Option<u64>]) -> u64 {
    let unlimited = if limits.contains(&None) { default } else { 0 };
    let known = || limits.iter().flatten().copied();
    match pod {
        Some(limit) => limit.max(known().max().unwrap_or(0)).saturating_add(unlimited),
        None => default.max(known().fold(unlimited, u64::saturating_add)),
    }
}

/// CPUs that are enough; `None` where nothing bounds them.
fn vcpus(pod: Option<&Resources>, containers: &BTreeMap<String, Grant>) -> Option<u8> {
    let pod = pod.and_then(|r| quota_cpus(r.cpu_quota, r.cpu_period))?;
    let most =
        containers.values().try_fold(pod, |most, grant| Some(most.max(grant.cpu_milli?.div_ceil(1000))))?;
    Some(u8::try_from(most).unwrap_or(u8::MAX))
}

/// The kernel's period where none is named, in microseconds.
pub(crate) const CPU_PERIOD: u64 = 100_000;

/// CPUs that a quota amounts to, rounded up.
pub(crate) fn quota_cpus(quota: i64, period: i64) -> Option<u64> {
    let quota = positive(Some(quota))?;
    Some(quota.div_ceil(positive(Some(period)).unwrap_or(CPU_PERIOD)))
}

/// What the guest itself takes.
pub(crate) fn memory_overhead(overhead: Option<&Resources>) -> u64 {
    positive(overhead.map(|r| r.memory_limit_bytes)).unwrap_or(GUEST_OVERHEAD)
}

pub(crate) fn positive(value: Option<i64>) -> Option<u64> {
    value.and_then(|v| u64::try_from(v).ok()).filter(|&v| v > 0)
}
