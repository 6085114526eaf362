//! Counters of lost frames. Frames are dropped as on any wire, and never logged: the guest decides their
//! number.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::virtio::Counts;

/// Lost frames, shared between the interface and its worker.
#[derive(Clone, Debug, Default)]
pub(super) struct Drops(Arc<Counters>);

#[derive(Debug, Default)]
struct Counters {
    /// Frames from the tap too long for the driver's buffers.
    received: AtomicU64,
    /// Frames from the driver: malformed, or refused by the tap.
    sent: AtomicU64,
    /// Failed reads of the tap, for example while it is down.
    tap_errors: AtomicU64,
}

impl Drops {
    pub(super) fn received(&self) {
        self.0.received.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn sent(&self) {
        self.0.sent.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn tap_error(&self) {
        self.0.tap_errors.fetch_add(1, Ordering::Relaxed);
    }

    /// Returns all counts of an interface with so many `faults`.
    pub(super) fn counts(&self, faults: u64) -> Counts {
        let [dropped_received, dropped_sent] =
            [&self.0.received, &self.0.sent].map(|counter| counter.load(Ordering::Relaxed));
        Counts { faults, dropped_received, dropped_sent }
    }
}
