//! How large a pod's machine may be: what a handler allows, and what a pod's machine is built for.
//! `ledger.rs` says how much of it a pod has at a given time.

use serde::{Deserialize, Serialize};

use crate::ledger::{containers_memory, memory_overhead, positive, quota_cpus};
use crate::{PodSpec, SpecError};

/// Guest memory comes in this many bytes: KVM maps it with 2 MiB pages.
pub const MEMORY_GRAIN: u64 = 2 << 20;

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
    /// Most memory of a pod's machine, overhead included, in bytes.
    pub memory_max: u64,
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
            memory_max: 4 << 30,
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
#[serde(default)]
pub struct VmSize {
    /// Bytes, a multiple of [`MEMORY_GRAIN`].
    pub memory_bytes: u64,
    /// 1..=64.
    pub vcpus: u8,
}

/// What a machine is built for; fixed for its life, whatever becomes of the handler.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct VmBounds {
    /// Its size when it boots.
    pub boot: VmSize,
    /// What it may grow to; never less than `boot`.
    pub most: VmSize,
    /// Memory for containers that name no limit, in bytes.
    pub memory_default: u64,
}

impl VmBounds {
    /// Of this pod's machine.
    ///
    /// # Errors
    /// The pod asks for more memory than the handler allows.
    pub fn of(pod: &PodSpec, handler: &HandlerConfig) -> Result<VmBounds, SpecError> {
        let limit = positive(pod.resources.as_ref().map(|r| r.memory_limit_bytes));
        let overhead = memory_overhead(pod.overhead.as_ref());
        let needed = |limit| machine_memory(containers_memory(limit, handler.memory_default, &[]), overhead);
        let memory_bytes = needed(limit);
        // A handler's own default always fits.
        let memory_max = machine_memory(handler.memory_max, 0).max(needed(None));
        if memory_bytes > memory_max {
            return Err(beyond("linux.resources.memory_limit_in_bytes", memory_bytes, memory_max));
        }
        let vcpus_max = handler.vcpus_max.clamp(1, 64);
        let quota = pod.resources.as_ref().and_then(|r| quota_cpus(r.cpu_quota, r.cpu_period));
        let vcpus = quota.map_or(vcpus_max, |cpus| u8::try_from(cpus).unwrap_or(u8::MAX).clamp(1, vcpus_max));
        Ok(VmBounds {
            boot: VmSize { memory_bytes, vcpus },
            most: VmSize { memory_bytes: memory_max, vcpus: vcpus_max },
            memory_default: handler.memory_default,
        })
    }
}

/// A machine's memory for containers that need `containers` bytes.
pub(crate) fn machine_memory(containers: u64, overhead: u64) -> u64 {
    let bytes = containers.saturating_add(overhead).max(MEMORY_MIN);
    bytes.min(u64::MAX - MEMORY_GRAIN).next_multiple_of(MEMORY_GRAIN)
}

/// More than a machine may have.
pub(crate) fn beyond(field: &'static str, asked: u64, most: u64) -> SpecError {
    let mib = |bytes: u64| bytes >> 20;
    let reason = format!(
        "the pod's VM would need {} MiB with its overhead, and may have {} MiB",
        mib(asked),
        mib(most)
    );
    SpecError::Beyond { field, reason }
}
