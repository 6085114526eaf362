//! The life of the device as a whole: plug, activate, pause, save, restore, reset, unplug.

use virtio_bindings::virtio_ring::VIRTIO_RING_F_EVENT_IDX;
use virtio_queue::Queue;
use vmm_sys_util::eventfd::{EFD_NONBLOCK, EventFd};

use super::status::{DRIVER_OK, FAILED, NEEDS_RESET, Status, VERSION_1};
use super::{Activity, MmioTransport, QueueRegisters, TransportError, TransportState};
use crate::virtio::{Activation, DeviceError, Interrupt as _, VirtioDevice};

/// Largest queue that virtio knows (virtio 1.2, section 2.7).
const QUEUE_SIZE_MAX: u16 = 32768;

impl MmioTransport {
    /// Fills an empty slot. To the guest it is a device after reset.
    pub fn plug(&mut self, device: Box<dyn VirtioDevice>) -> Result<(), TransportError> {
        if let Some(device) = &self.device {
            return Err(TransportError::Occupied { device_id: device.device_id() });
        }
        let allowed = |size: &u16| size.is_power_of_two() && *size <= QUEUE_SIZE_MAX;
        if let Some(size) = device.queue_sizes().iter().find(|size| !allowed(size)) {
            return Err(TransportError::QueueSize { size: *size });
        }
        self.device = Some(device);
        self.reset();
        self.interrupt.next_generation();
        Ok(())
    }

    /// Empties the slot. The device is reset before it is given back: it touches guest memory no more.
    pub fn unplug(&mut self) -> Result<Box<dyn VirtioDevice>, TransportError> {
        self.reset();
        self.queues.clear();
        self.device.take().ok_or(TransportError::Empty)
    }

    /// Stops the device's work and keeps where it stood. Does nothing if it does not run.
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
            let reason = format!("device {device_id} lost its queues");
            return Err(TransportError::Mismatch { reason });
        };
        for (registers, queue) in self.queues.iter_mut().zip(&queues) {
            registers.set_positions(queue);
        }
        self.activity = Activity::Paused;
        Ok(())
    }

    /// Goes on after [`pause`](Self::pause) or [`restore`](Self::restore). Does nothing if not paused.
    pub fn resume(&mut self) -> Result<(), TransportError> {
        if !matches!(self.activity, Activity::Paused) {
            return Ok(());
        }
        self.activate().map_err(TransportError::Device)?;
        self.interrupt
            .restore(self.interrupt.status(), self.interrupt.generation())
            .map_err(TransportError::Event)
    }

    /// Registers and device as they stand. The device must not be running.
    pub fn save(&self) -> Result<TransportState, TransportError> {
        let device = self.device.as_ref().ok_or(TransportError::Empty)?;
        if self.is_running() {
            return Err(TransportError::Running);
        }
        Ok(TransportState {
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

    /// Takes on what [`save`](Self::save) gave, for a device of the same kind that was plugged just now.
    /// A device that was active is paused afterwards, and waits for [`resume`](Self::resume).
    pub fn restore(&mut self, state: &TransportState) -> Result<(), TransportError> {
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
        self.interrupt.restore(state.interrupt_status, state.config_generation).map_err(TransportError::Event)
    }

    /// Whether `state` may have been this device's.
    fn check_fit(&self, state: &TransportState) -> Result<(), TransportError> {
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

    /// Back to the start, whatever the device was doing.
    pub(super) fn reset(&mut self) {
        self.unregister_events();
        self.status = Status::default();
        self.device_features_select = 0;
        self.driver_features = 0;
        self.driver_features_select = 0;
        self.queue_select = 0;
        self.shared_memory_select = 0;
        if let Some(device) = &mut self.device {
            device.reset();
            self.queues = device.queue_sizes().iter().copied().map(QueueRegisters::new).collect();
        }
        // Last, since a back end may raise the line until its reset has returned.
        self.interrupt.acknowledge(u32::MAX);
    }

    /// The driver wrote DRIVER_OK.
    pub(super) fn activate_for_driver(&mut self) {
        let Err(error) = self.activate() else { return };
        self.activation_failures += 1;
        // The guest can repeat this for ever: the first one is logged, the rest counted.
        if self.activation_failures == 1 {
            tracing::warn!(%error, "a device could not be activated");
        }
        self.status.set_needs_reset();
        // A line that cannot be raised leaves the driver to read the status register.
        let _ = self.interrupt.config_changed();
    }

    fn activate(&mut self) -> Result<(), DeviceError> {
        let failed = |message: String| DeviceError { device: "virtio-mmio", message };
        let event_idx = self.driver_features & (1 << VIRTIO_RING_F_EVENT_IDX) != 0;
        let queues: Vec<Queue> = self
            .queues
            .iter()
            .map(|registers| registers.to_queue(event_idx, &self.memory))
            .collect::<Option<_>>()
            .ok_or_else(|| failed("a queue does not lie in guest memory".into()))?;
        let event = |_| EventFd::new(EFD_NONBLOCK);
        let events: Vec<EventFd> = (0..queues.len())
            .map(event)
            .collect::<Result<_, _>>()
            .map_err(|error| failed(format!("queue event: {error}")))?;
        let queue_events: Vec<EventFd> = events
            .iter()
            .map(EventFd::try_clone)
            .collect::<Result<_, _>>()
            .map_err(|error| failed(format!("queue event: {error}")))?;
        let Some(device) = &mut self.device else { return Err(failed("the slot is empty".into())) };
        if device.uses_queue_events() {
            for (index, event) in (0u16..).zip(&events) {
                if let Err(error) = self.events.register(event, index) {
                    for (index, event) in (0u16..index).zip(&events) {
                        let _ = self.events.unregister(event, index);
                    }
                    return Err(failed(format!("ioeventfd of queue {index}: {error}")));
                }
            }
        }
        let activation = Activation {
            memory: self.memory.clone(),
            queues,
            queue_events,
            interrupt: self.interrupt.clone(),
            features: self.driver_features,
        };
        let result = device.activate(activation);
        self.activity = Activity::Running(events);
        if result.is_err() {
            self.unregister_events();
        }
        result
    }

    /// Ends the notifications of a running device, which is idle then.
    fn unregister_events(&mut self) {
        let activity = std::mem::replace(&mut self.activity, Activity::Idle);
        let (Activity::Running(events), Some(device)) = (activity, &self.device) else { return };
        if device.uses_queue_events() {
            for (index, event) in (0u16..).zip(&events) {
                // One that stays behind writes to an event nobody reads; the next activation reports it.
                let _ = self.events.unregister(event, index);
            }
        }
    }
}

impl Drop for MmioTransport {
    fn drop(&mut self) {
        self.reset();
    }
}
