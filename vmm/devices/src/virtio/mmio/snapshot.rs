//! Pause, save and restore of a transport and its device. `VirtioDevice` has the devices' part in its last
//! three methods, and each device has its saved state in `snapshot`.

use serde::{Deserialize, Serialize};

use super::queue::QueueRegisters;
use super::status::{DRIVER_OK, FAILED, NEEDS_RESET, Status, VERSION_1};
use super::{Activity, MmioTransport, TransportError};

/// Registers of one slot and the state of the device in it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TransportSnapshot {
    /// Device ID of the plugged device. The same device must be plugged before the state is restored.
    pub device_id: u32,
    /// Status register.
    pub(super) status: Status,
    /// Features chosen by the driver.
    pub driver_features: u64,
    /// Selects the readable 32 bits of the device's features.
    pub device_features_select: u32,
    /// Selects the writable 32 bits of the driver's features.
    pub driver_features_select: u32,
    /// Queue selected for the queue registers.
    pub queue_select: u32,
    /// Shared memory region selected for the region registers.
    pub shared_memory_select: u32,
    /// Pending interrupt reasons.
    pub interrupt_status: u32,
    /// Configuration generation.
    pub config_generation: u32,
    /// The queues, in order.
    pub queues: Vec<QueueRegisters>,
    /// The device's own state.
    #[serde(with = "json_text")]
    pub device: serde_json::Value,
}

/// A device's own state as JSON text. The text describes its own fields; the surrounding format need not.
mod json_text {
    use serde::de::Error as _;
    use serde::{Deserialize as _, Deserializer, Serialize as _, Serializer};
    use serde_json::Value;

    pub(super) fn serialize<S: Serializer>(value: &Value, serializer: S) -> Result<S::Ok, S::Error> {
        value.to_string().serialize(serializer)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Value, D::Error> {
        serde_json::from_str(&String::deserialize(deserializer)?).map_err(D::Error::custom)
    }
}

impl MmioTransport {
    /// Stops the device's work and keeps its positions. Does nothing if it does not run.
    pub fn pause(&mut self) -> Result<(), TransportError> {
        let Some(device) = &mut self.device else { return Ok(()) };
        if !matches!(self.activity, Activity::Running(_)) {
            return Ok(());
        }
        let device_id = device.device_id();
        let queues = device.pause();
        self.unregister_events();
        let Some(queues) = queues.filter(|queues| queues.len() == self.queues.len()) else {
            self.status.set_needs_reset();
            self.publish();
            let reason = format!("device {device_id} lost its queues");
            return Err(TransportError::Mismatch { reason });
        };
        for (registers, queue) in self.queues.iter_mut().zip(&queues) {
            registers.set_positions(queue);
        }
        self.activity = Activity::Paused;
        Ok(())
    }

    /// Continues after [`pause`](Self::pause) or [`restore`](Self::restore). Does nothing if not paused.
    pub fn resume(&mut self) -> Result<(), TransportError> {
        if !matches!(self.activity, Activity::Paused) {
            return Ok(());
        }
        self.activate().map_err(TransportError::Device)?;
        self.interrupt
            .restore(self.interrupt.status(), self.interrupt.generation())
            .map_err(TransportError::Event)
    }

    /// Returns the current registers and device state. The device must not be running.
    pub fn save(&self) -> Result<TransportSnapshot, TransportError> {
        let device = self.device.as_ref().ok_or(TransportError::Empty)?;
        if self.is_running() {
            return Err(TransportError::Running);
        }
        Ok(TransportSnapshot {
            device_id: device.device_id(),
            status: self.status,
            driver_features: self.driver_features,
            device_features_select: self.device_features_select,
            driver_features_select: self.driver_features_select,
            queue_select: self.queue_select,
            shared_memory_select: self.shared_memory_select,
            interrupt_status: self.interrupt.status(),
            config_generation: self.interrupt.generation(),
            queues: self.queues.clone(),
            device: device.save(),
        })
    }

    /// Restores a state from [`save`](Self::save), for a newly plugged device of the same kind. If the device
    /// was active, it is paused afterwards, and waits for [`resume`](Self::resume).
    pub fn restore(&mut self, state: &TransportSnapshot) -> Result<(), TransportError> {
        if self.is_running() {
            return Err(TransportError::Running);
        }
        self.check_fit(state)?;
        let device = self.device.as_mut().ok_or(TransportError::Empty)?;
        device.restore(&state.device).map_err(TransportError::Device)?;
        self.status = state.status;
        self.driver_features = state.driver_features;
        self.device_features_select = state.device_features_select;
        self.driver_features_select = state.driver_features_select;
        self.queue_select = state.queue_select;
        self.shared_memory_select = state.shared_memory_select;
        self.queues.clone_from(&state.queues);
        let live = state.status.has(DRIVER_OK) && state.status.bits() & (FAILED | NEEDS_RESET) == 0;
        self.activity = if live { Activity::Paused } else { Activity::Idle };
        self.publish();
        self.interrupt.restore(state.interrupt_status, state.config_generation).map_err(TransportError::Event)
    }

    /// Checks that `state` may have been this device's.
    fn check_fit(&self, state: &TransportSnapshot) -> Result<(), TransportError> {
        let device = self.device.as_ref().ok_or(TransportError::Empty)?;
        let mismatch = |reason: String| Err(TransportError::Mismatch { reason });
        if state.device_id != device.device_id() {
            return mismatch(format!("device ID {} for {}", state.device_id, device.device_id()));
        }
        let unknown = state.driver_features & !device.features();
        if state.status.has(DRIVER_OK) && (unknown != 0 || state.driver_features & VERSION_1 == 0) {
            return mismatch(format!("features {:#x}", state.driver_features));
        }
        let sizes: Vec<u16> = state.queues.iter().map(|queue| queue.max_size).collect();
        if sizes != device.queue_sizes() {
            return mismatch(format!("queues of {sizes:?} for {:?}", device.queue_sizes()));
        }
        match state.queues.iter().position(|queue| queue.ready && !queue.is_valid(&self.memory)) {
            Some(index) => mismatch(format!("queue {index} does not lie in guest memory")),
            None => Ok(()),
        }
    }
}
