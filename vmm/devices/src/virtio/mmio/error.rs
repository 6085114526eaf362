//! The errors of a transport.

use crate::virtio::DeviceError;

/// The transport could not carry out the VM's request.
#[derive(Debug, thiserror::Error)]
pub enum TransportError {
    /// A device is already in the slot.
    #[error("the slot holds a device already (ID {device_id})")]
    Occupied {
        /// Device ID of the device in the slot.
        device_id: u32,
    },
    /// The slot holds nothing.
    #[error("the slot is empty")]
    Empty,
    /// The device is at work and must be paused first.
    #[error("the device is running: pause it first")]
    Running,
    /// The device offers queue sizes not allowed by virtio.
    #[error("a queue size of {size} is no power of two up to 32768")]
    QueueSize {
        /// The size.
        size: u16,
    },
    /// The saved state is another device's.
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
