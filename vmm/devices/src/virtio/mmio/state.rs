//! The state of a transport in a saved VM.

use serde::{Deserialize, Serialize};

use super::queue::QueueRegisters;
use super::status::Status;
use crate::virtio::DeviceError;

/// Registers of one slot and the state of the device in it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TransportState {
    /// Device ID of what was plugged; the same must be plugged before the state is restored.
    pub device_id: u32,
    /// Status register.
    pub(super) status: Status,
    /// Features that the driver chose.
    pub driver_features: u64,
    /// Selects the 32 bits of the device's features that are read.
    pub device_features_select: u32,
    /// Selects the 32 bits of the driver's features that are written.
    pub driver_features_select: u32,
    /// Queue that the queue registers speak of.
    pub queue_select: u32,
    /// Shared memory region that the region registers speak of.
    pub shared_memory_select: u32,
    /// Pending interrupt reasons.
    pub interrupt_status: u32,
    /// Configuration generation.
    pub config_generation: u32,
    /// The queues, in order.
    pub queues: Vec<QueueRegisters>,
    /// The device's own.
    pub device: serde_json::Value,
}

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
