//! The interrupt line of a slot: a status bit for the driver to read, then a pulse, turned into an interrupt
//! by the VM. The line is shared with back-end threads, so it uses atomics and no lock. Its two registers,
//! the status and the generation of the configuration, exist only in the slot's page.
//!
//! A driver acknowledges the reasons it has read. Podvisor's guest kernel skips this if the only reason is
//! used buffers (an exit saved; guest-image/kernel/build.sh). The bit then stays for good, and means "look at
//! the queues". The driver does so for any interrupt anyway. The line is an edge, and needs no
//! acknowledgement either.

use std::fmt::Debug;
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use virtio_bindings::virtio_mmio::{VIRTIO_MMIO_INT_CONFIG, VIRTIO_MMIO_INT_VRING};
use vmm_sys_util::eventfd::EventFd;

use super::page::RegisterPage;
use crate::virtio::Interrupt;

/// A line of the VM's interrupt controller. An edge on it is an interrupt.
pub trait InterruptLine: Debug + Send + Sync {
    /// Raises the line and lowers it again.
    fn pulse(&self) -> io::Result<()>;
}

/// An event stands for a line if there is no VM.
impl InterruptLine for EventFd {
    fn pulse(&self) -> io::Result<()> {
        self.write(1)
    }
}

/// The line. One per slot, for the slot's life.
#[derive(Debug)]
pub(super) struct MmioInterrupt {
    line: Arc<dyn InterruptLine>,
    page: Arc<RegisterPage>,
}

impl MmioInterrupt {
    pub(super) fn new(line: Arc<dyn InterruptLine>, page: Arc<RegisterPage>) -> Arc<Self> {
        Arc::new(MmioInterrupt { line, page })
    }

    /// Returns the reasons for the interrupt, as the driver reads them.
    pub(super) fn status(&self) -> u32 {
        self.page.interrupt_status().load(Ordering::Acquire)
    }

    /// Clears reasons handled by the driver.
    pub(super) fn acknowledge(&self, bits: u32) {
        self.page.interrupt_status().fetch_and(!bits, Ordering::AcqRel);
    }

    /// Returns a number that changes with the configuration space.
    pub(super) fn generation(&self) -> u32 {
        self.page.generation().load(Ordering::Acquire)
    }

    /// Called for a new device behind the line: the driver's knowledge of the old one is void.
    pub(super) fn next_generation(&self) {
        self.page.generation().fetch_add(1, Ordering::AcqRel);
    }

    /// Restores saved registers, and raises the line again if a reason was pending.
    pub(super) fn restore(&self, status: u32, generation: u32) -> io::Result<()> {
        self.page.generation().store(generation, Ordering::Release);
        self.page.interrupt_status().store(status, Ordering::Release);
        if status == 0 { Ok(()) } else { self.line.pulse() }
    }

    /// Reports a changed device status with an unchanged configuration.
    pub(super) fn status_changed(&self) -> io::Result<()> {
        self.next_generation();
        self.raise(VIRTIO_MMIO_INT_CONFIG)
    }

    fn raise(&self, bit: u32) -> io::Result<()> {
        self.page.interrupt_status().fetch_or(bit, Ordering::AcqRel);
        self.line.pulse()
    }
}

impl Interrupt for MmioInterrupt {
    fn used_buffer(&self) -> io::Result<()> {
        self.raise(VIRTIO_MMIO_INT_VRING)
    }

    fn config_changed(&self, config: &[u8]) -> io::Result<()> {
        self.page.renew_config(config);
        self.raise(VIRTIO_MMIO_INT_CONFIG)
    }
}
