//! How large a pod's machine is: one calculation, used for the VM, for reports and for metrics.
//!
//! ```text
//!  memory = (limit of the pod's resources, else the handler's default)
//!         + (overhead as sent, else GUEST_OVERHEAD)            rounded up to MEMORY_GRAIN
//!  vCPUs  = ceiling of the cpu quota where one is sent, within 1 ..= min(host cpus, handler's most)
//! ```

use serde::{Deserialize, Serialize};

use crate::PodSpec;

/// Guest memory comes in this many bytes: KVM maps it with 2 MiB pages.
pub const MEMORY_GRAIN: u64 = 2 << 20;

/// What the guest kernel, the agent and page tables take, in bytes, where no overhead is sent.
pub(crate) const GUEST_OVERHEAD: u64 = 48 << 20;

/// Smallest machine that boots and runs a container, in bytes.
pub(crate) const MEMORY_MIN: u64 = 64 << 20;

/// What a handler's name stands for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct HandlerConfig {
    /// As RuntimeClass names it.
    pub name: String,
    /// Memory for the containers of a pod that says nothing, in bytes.
    pub memory_default: u64,
    /// Most vCPUs of a pod.
    pub vcpus_max: u8,
    /// Size of a pod's scratch disk, in bytes; at least the template's.
    pub scratch_bytes: u64,
    /// Who runs its pods.
    pub kind: HandlerKind,
}

impl Default for HandlerConfig {
    fn default() -> Self {
        HandlerConfig {
            name: String::new(),
            memory_default: 256 << 20,
            vcpus_max: 8,
            scratch_bytes: 8 << 30,
            kind: HandlerKind::Vm,
        }
    }
}

/// Who runs a handler's pods.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum HandlerKind {
    /// A machine of their own.
    Vm,
}

/// A machine's size.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct VmSize {
    /// Bytes, a multiple of [`MEMORY_GRAIN`].
    pub memory_bytes: u64,
    /// 1..=64.
    pub vcpus: u8,
}

impl VmSize {
    /// The size for this pod on a host with `host_cpus` CPUs.
    pub fn of(pod: &PodSpec, handler: &HandlerConfig, host_cpus: usize) -> VmSize {
        let asked = pod.resources.as_ref();
        let overhead = pod.overhead.as_ref();
        let memory = positive(asked.map(|r| r.memory_limit_bytes)).unwrap_or(handler.memory_default);
        let extra = positive(overhead.map(|r| r.memory_limit_bytes)).unwrap_or(GUEST_OVERHEAD);
        let memory_bytes = memory.saturating_add(extra).max(MEMORY_MIN);
        let memory_bytes = memory_bytes.min(u64::MAX - MEMORY_GRAIN).next_multiple_of(MEMORY_GRAIN);
        let most = usize::from(handler.vcpus_max).min(host_cpus).clamp(1, 64);
        let vcpus = asked.and_then(|r| quota_cpus(r.cpu_quota, r.cpu_period)).map_or(most, |n| n.min(most));
        VmSize { memory_bytes, vcpus: u8::try_from(vcpus.max(1)).expect("at most 64") }
    }
}

/// CPUs that a quota amounts to, rounded up.
fn quota_cpus(quota: i64, period: i64) -> Option<usize> {
    let quota = u64::try_from(quota).ok().filter(|&q| q > 0)?;
    let period = u64::try_from(period).ok().filter(|&p| p > 0).unwrap_or(100_000);
    usize::try_from(quota.div_ceil(period)).ok()
}

fn positive(value: Option<i64>) -> Option<u64> {
    value.and_then(|v| u64::try_from(v).ok()).filter(|&v| v > 0)
}
