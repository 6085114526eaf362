//! The times of a boot's milestones, in nanoseconds of the host's CLOCK_MONOTONIC.

use std::sync::atomic::{AtomicU64, Ordering};

use nix::time::{ClockId, clock_gettime};

/// Returns the time now; zero if the clock cannot be read, but this does not happen on Linux.
pub fn monotonic_ns() -> u64 {
    let Ok(now) = clock_gettime(ClockId::CLOCK_MONOTONIC) else { return 0 };
    let seconds = u64::try_from(now.tv_sec()).unwrap_or_default();
    let nanoseconds = u64::try_from(now.tv_nsec()).unwrap_or_default();
    seconds * 1_000_000_000 + nanoseconds
}

/// The milestones visible only to the VM.
#[derive(Debug, Default)]
pub(crate) struct Milestones {
    guest_entered_ns: AtomicU64,
}

impl Milestones {
    /// Records the first vCPU's entry into the guest. Only the first call counts.
    pub(crate) fn guest_entered(&self) {
        if self.guest_entered_ns.load(Ordering::Relaxed) == 0 {
            self.guest_entered_ns.store(monotonic_ns(), Ordering::Relaxed);
        }
    }

    pub(crate) fn guest_entered_ns(&self) -> u64 {
        self.guest_entered_ns.load(Ordering::Relaxed)
    }
}
