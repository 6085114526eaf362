//! The errors of a transport.

use crate::virtio::DeviceError;

/// The transport could not do what the VM asked.
#[derive(Debug, thiserror::Error)]
pub enum TransportError {
    /// A device is already in the slot.
    #[error("the slot holds a device already (ID {device_id})")]
    Occupied {
        /// Device ID of what is in it.
        device_id: u32,
    },
    /// The slot holds nothing.
    #[error("the slot is empty")]
    Empty,
    /// The device is at work and must be paused first.
    #[error("the device is running: pause it first")]
    Running,
    /// The device offers queue sizes that virtio does not know.
    #[error("a queue size of {size} is no power of two up to 32768")]
    QueueSize {
        /// The size.
        size: u16,
    },
    /// The state was saved from something else.
    #[error("the saved state does not fit the device: {reason}")]
    Mismatch {
        /// The difference.
        reason: String,
    },
    /// The device refused.
    #[error("the device failed")]
    Device(#[source] DeviceError),
    /// An eventfd could not be made or written.
    #[error("an event descriptor failed")]
    Event(#[source] std::io::Error),
}
