//! The interface between the transport and every virtio device (virtio 1.2, sections 2 and 4.2).
//!
//! ```text
//!   plugged ──driver writes DRIVER_OK──> activate() ──> active ──driver writes 0──> reset() ──> plugged
//! ```
//!
//! The transport (`mmio`) owns the register state: status, feature selection, queue addresses. A device owns
//! everything behind its queues.

mod allowance;
pub mod balloon;
pub mod blk;
pub mod chain;
mod crew;
mod free_pages;
mod front;
pub mod fs;
pub mod iovec;
pub mod mem;
mod memory;
pub mod mmio;
pub mod net;
pub mod pmem;
mod queue_areas;
pub mod receive_window;
pub mod ring;
pub mod rng;
#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;
pub mod vsock;
pub mod worker;

use std::sync::Arc;

use virtio_queue::Queue;
use vmm_sys_util::eventfd::EventFd;

pub use memory::{GuestMemory, MemoryMap, MemoryPartError};

/// Raises the device's interrupt in the guest.
pub trait Interrupt: Send + Sync + std::fmt::Debug {
    /// A used buffer was added to a queue (VIRTIO_MMIO_INT_VRING).
    fn used_buffer(&self) -> std::io::Result<()>;
    /// The device's configuration changed to `config`, all of it (VIRTIO_MMIO_INT_CONFIG).
    fn config_changed(&self, config: &[u8]) -> std::io::Result<()>;
}

/// The parts given to a device when the driver is ready.
#[derive(Debug)]
pub struct Activation {
    /// Guest memory. Descriptors point into it.
    pub memory: GuestMemory,
    /// The device's queues, in order, as the driver set them up. Disabled queues are included, with `ready()`
    /// false.
    pub queues: Vec<Queue>,
    /// One per queue: readable when the driver has notified the queue (an ioeventfd if
    /// [`VirtioDevice::uses_queue_event`] returns true). The transport does not write it otherwise.
    pub queue_events: Vec<EventFd>,
    /// Raises the driver's interrupt.
    pub interrupt: Arc<dyn Interrupt>,
    /// Features agreed on by both sides.
    pub features: u64,
}

/// Counts of a device. A guest decides their growth, so nothing here is logged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Malformed requests and rings of the driver.
    pub faults: u64,
    /// Lost frames for the guest, because they did not fit the driver's buffers.
    pub dropped_received: u64,
    /// Lost frames of the guest: malformed, or refused by the tap.
    pub dropped_sent: u64,
}

/// A device could not start or stop its work.
#[derive(Debug, thiserror::Error)]
#[error("{device}: {message}")]
pub struct DeviceError {
    /// The device's kind, as in its thread's name.
    pub device: &'static str,
    /// The failure, for a person.
    pub message: String,
}

/// A virtio device behind the transport. It is called with the transport's lock held: no method may block on
/// the guest.
pub trait VirtioDevice: Send + std::fmt::Debug {
    /// Device ID (virtio 1.2 section 5): 1 net, 2 block, 4 entropy, 5 balloon, 19 socket, 24 memory, 26 fs,
    /// 27 pmem.
    fn device_id(&self) -> u32;

    /// Offered features, including VIRTIO_F_VERSION_1.
    fn features(&self) -> u64;

    /// Largest size of each queue, a power of two. The length is the number of queues.
    fn queue_sizes(&self) -> &[u16];

    /// Returns true if the transport should register an ioeventfd for queue `index`, so a notification
    /// reaches the back-end thread without passing a vCPU thread. Otherwise [`notify`](Self::notify) is
    /// called. Always the same for a queue.
    fn uses_queue_event(&self, index: u16) -> bool;

    /// Reads configuration space. Bytes beyond its end read as zero. The transport calls this when the device
    /// is plugged and after each write of the driver. [`Interrupt::config_changed`] reports a change at
    /// another time.
    fn read_config(&self, offset: u64, data: &mut [u8]);

    /// Writes configuration space. Writes to read-only places are ignored.
    fn write_config(&mut self, _offset: u64, _data: &[u8]) {}

    /// Returns shared memory region `id` as (guest-physical base, length in bytes), if there is one.
    fn shared_memory_region(&self, _id: u8) -> Option<(u64, u64)> {
        None
    }

    /// Called when the driver is ready. On an error the transport sets DEVICE_NEEDS_RESET.
    fn activate(&mut self, activation: Activation) -> Result<(), DeviceError>;

    /// Called when the driver notified queue `index`, on the vCPU's thread, only between activation and
    /// reset, and only if [`uses_queue_event`](Self::uses_queue_event) is false for it.
    fn notify(&mut self, _index: u16) {}

    /// Returns the counts since the device was made.
    fn counts(&self) -> Counts;

    /// Returns the queues with requests of the driver, without the queues of empty buffers. The number of
    /// waiting requests there is the device's backlog.
    fn request_queues(&self) -> &'static [usize] {
        &[]
    }

    /// Stops the work and forgets the queues. No guest memory is touched once this returns. An inactive
    /// device does nothing.
    fn reset(&mut self);

    /// Stops the work and returns the queues in their current state, for [`save`](Self::save); `None` if not
    /// active. [`activate`](Self::activate) with those queues continues from there.
    fn pause(&mut self) -> Option<Vec<Queue>>;

    /// Returns the device's own state beyond its queues, as JSON. Called while not active.
    fn save(&self) -> serde_json::Value;

    /// Restores a state from [`save`](Self::save). Called before activation.
    fn restore(&mut self, state: &serde_json::Value) -> Result<(), DeviceError>;
}
