//! The interrupt line of a slot: a status bit for the driver to read, then an eventfd that KVM turns
//! into an interrupt. Shared with back-end threads, so it is atomics and no lock.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use virtio_bindings::virtio_mmio::{VIRTIO_MMIO_INT_CONFIG, VIRTIO_MMIO_INT_VRING};
use vmm_sys_util::eventfd::EventFd;

use crate::virtio::Interrupt;

/// The line. One per slot, for the slot's life.
#[derive(Debug)]
pub(super) struct MmioInterrupt {
    line: EventFd,
    status: AtomicU32,
    generation: AtomicU32,
}

impl MmioInterrupt {
    pub(super) fn new(line: EventFd) -> Arc<Self> {
        Arc::new(MmioInterrupt { line, status: AtomicU32::new(0), generation: AtomicU32::new(0) })
    }

    /// Why the line was raised: what the driver reads.
    pub(super) fn status(&self) -> u32 {
        self.status.load(Ordering::Acquire)
    }

    /// The driver has dealt with these reasons.
    pub(super) fn acknowledge(&self, bits: u32) {
        self.status.fetch_and(!bits, Ordering::AcqRel);
    }

    /// Changes whenever the configuration space does.
    pub(super) fn generation(&self) -> u32 {
        self.generation.load(Ordering::Acquire)
    }

    /// A new device stands behind the line: what was read of the old one is void.
    pub(super) fn next_generation(&self) {
        self.generation.fetch_add(1, Ordering::AcqRel);
    }

    /// Takes on saved registers, and raises the line again if a reason was pending.
    pub(super) fn restore(&self, status: u32, generation: u32) -> io::Result<()> {
        self.generation.store(generation, Ordering::Release);
        self.status.store(status, Ordering::Release);
        if status == 0 { Ok(()) } else { self.line.write(1) }
    }

    fn raise(&self, bit: u32) -> io::Result<()> {
        self.status.fetch_or(bit, Ordering::AcqRel);
        self.line.write(1)
    }
}

impl Interrupt for MmioInterrupt {
    fn used_buffer(&self) -> io::Result<()> {
        self.raise(VIRTIO_MMIO_INT_VRING)
    }

    fn config_changed(&self) -> io::Result<()> {
        self.next_generation();
        self.raise(VIRTIO_MMIO_INT_CONFIG)
    }
}
