//! The life of the device as a whole: plug, activate, reset, unplug. `snapshot` has pause, save and restore.

use virtio_bindings::virtio_ring::VIRTIO_RING_F_EVENT_IDX;
use virtio_queue::Queue;
use vmm_sys_util::eventfd::{EFD_NONBLOCK, EventFd};

use super::status::Status;
use super::{Activity, MmioTransport, QueueRegisters, TransportError};
use crate::virtio::{Activation, DeviceError, VirtioDevice};

/// Largest queue size in virtio (virtio 1.2, section 2.7).
const QUEUE_SIZE_MAX: u16 = 32768;

impl MmioTransport {
    /// Fills an empty slot. The guest sees a device after reset.
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
        self.publish();
        Ok(())
    }

    /// Empties the slot. The device is reset before it is returned, so it touches guest memory no more.
    pub fn unplug(&mut self) -> Result<Box<dyn VirtioDevice>, TransportError> {
        self.reset();
        self.queues.clear();
        let device = self.device.take();
        self.publish();
        device.ok_or(TransportError::Empty)
    }

    /// Returns to the start, whatever the device was doing.
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
        // Last, because a back end may raise the line until its reset has returned.
        self.interrupt.acknowledge(u32::MAX);
    }

    /// Called after the driver wrote DRIVER_OK.
    pub(super) fn activate_for_driver(&mut self) {
        let Err(error) = self.activate() else { return };
        self.activation_failures += 1;
        // The guest can repeat this for ever: the first one is logged, the rest counted.
        if self.activation_failures == 1 {
            tracing::warn!(%error, "a device could not be activated");
        }
        self.status.set_needs_reset();
        self.publish();
        // If the line cannot be raised, the driver can still read the status register.
        let _ = self.interrupt.status_changed();
    }

    pub(super) fn activate(&mut self) -> Result<(), DeviceError> {
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
        let with_event = |index: &(u16, &EventFd)| device.uses_queue_event(index.0);
        for (index, event) in (0u16..).zip(&events).filter(with_event) {
            if let Err(error) = self.events.register(event, index) {
                for (index, event) in (0u16..index).zip(&events).filter(with_event) {
                    let _ = self.events.unregister(event, index);
                }
                return Err(failed(format!("ioeventfd of queue {index}: {error}")));
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

    /// Ends the notifications of a running device. The device is idle afterwards.
    pub(super) fn unregister_events(&mut self) {
        let activity = std::mem::replace(&mut self.activity, Activity::Idle);
        let (Activity::Running(events), Some(device)) = (activity, &self.device) else { return };
        for (index, event) in (0u16..).zip(&events).filter(|(index, _)| device.uses_queue_event(*index)) {
            // A leftover registration writes to an event without a reader; the next activation reports it.
            let _ = self.events.unregister(event, index);
        }
    }
}

impl Drop for MmioTransport {
    fn drop(&mut self) {
        self.reset();
    }
}
