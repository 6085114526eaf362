//! The arithmetic of a VM's size, used by the bounds at boot and by the ledger from then on. Pure.

use crate::{Resources, SpecError};

/// Guest memory comes in multiples of this many bytes: KVM maps it with 2 MiB pages.
pub const MEMORY_GRAIN: u64 = 2 << 20;

/// Smallest VM that boots and runs a container, in bytes.
const MEMORY_MIN: u64 = 64 << 20;

/// Memory in bytes for the guest kernel, the agent and page tables, where no overhead is sent.
pub(crate) const GUEST_OVERHEAD: u64 = 48 << 20;

/// The kernel's CPU period in microseconds, where none is named.
pub(crate) const CPU_PERIOD: u64 = 100_000;

/// Memory in bytes for containers with these limits.
pub(crate) fn containers_memory(pod: Option<u64>, default: u64, limits: &[Option<u64>]) -> u64 {
    let unlimited = if limits.contains(&None) { default } else { 0 };
    let known = || limits.iter().flatten().copied();
    match pod {
        Some(limit) => limit.max(known().max().unwrap_or(0)).saturating_add(unlimited),
        None => default.max(known().fold(unlimited, u64::saturating_add)),
    }
}

/// CPUs that a quota amounts to, rounded up; `None` without a quota.
pub(crate) fn quota_cpus(quota: i64, period: i64) -> Option<u64> {
    let quota = positive(Some(quota))?;
    Some(quota.div_ceil(positive(Some(period)).unwrap_or(CPU_PERIOD)))
}

/// Memory in bytes that the guest itself takes: the overhead as sent, else [`GUEST_OVERHEAD`].
pub(crate) fn memory_overhead(overhead: Option<&Resources>) -> u64 {
    positive(overhead.map(|r| r.memory_limit_bytes)).unwrap_or(GUEST_OVERHEAD)
}

/// A number of CRI's, where zero and less mean that nothing is asked.
pub(crate) fn positive(value: Option<i64>) -> Option<u64> {
    value.and_then(|v| u64::try_from(v).ok()).filter(|&v| v > 0)
}

/// Memory in bytes of a VM whose containers need `containers` bytes.
pub(crate) fn vm_memory(containers: u64, overhead: u64) -> u64 {
    let bytes = containers.saturating_add(overhead).max(MEMORY_MIN);
    bytes.min(u64::MAX - MEMORY_GRAIN).next_multiple_of(MEMORY_GRAIN)
}

/// The refusal of a VM that would be larger than its handler allows.
pub(crate) fn beyond(field: &'static str, asked: u64, most: u64) -> SpecError {
    let mib = |bytes: u64| bytes >> 20;
    let reason = format!(
        "the pod's VM would need {} MiB with its overhead, and may have {} MiB",
        mib(asked),
        mib(most)
    );
    SpecError::Beyond { field, reason }
}
