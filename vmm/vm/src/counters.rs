//! Exits counted by kind, in relaxed atomics. Each counter is exact, but together they are only roughly of
//! one moment.

use std::sync::atomic::{AtomicU64, Ordering};

use proto_vmm::ExitCounts;

/// One counter.
#[derive(Debug, Default)]
pub(crate) struct Counter(AtomicU64);

impl Counter {
    pub(crate) fn add(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// All counters of a VM, shared by its vCPUs.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub(crate) mmio_read: Counter,
    pub(crate) mmio_write: Counter,
    pub(crate) pio_in: Counter,
    pub(crate) pio_out: Counter,
    pub(crate) halt: Counter,
    pub(crate) interrupted: Counter,
    pub(crate) other: Counter,
}

impl Counters {
    pub(crate) fn read(&self) -> ExitCounts {
        ExitCounts {
            mmio_read: self.mmio_read.get(),
            mmio_write: self.mmio_write.get(),
            pio_in: self.pio_in.get(),
            pio_out: self.pio_out.get(),
            halt: self.halt.get(),
            interrupted: self.interrupted.get(),
            other: self.other.get(),
        }
    }
}
