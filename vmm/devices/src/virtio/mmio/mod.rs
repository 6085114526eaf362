//! virtio over MMIO, register layout version 2 (virtio 1.2, section 4.2.2): one transport per slot.
//!
//! The transport owns a slot's registers, its interrupt line and, while one is plugged, its device. Every
//! write of the driver is checked, and the device gets a queue only if its rings lie in guest memory. The
//! transport never trusts a width, an offset or an order of writes, and reads nothing of a ring but its two
//! counters (`counts`). Reads do not exit: the guest reads the slot's page (`page`), and the transport
//! publishes its registers there after each write.
//!
//! ```text
//!   empty ──plug──> idle ──DRIVER_OK──> running ──pause──> paused
//!     ▲              │ ▲                  │  ▲               │ │
//!     └───unplug─────┘ └──status 0, fail──┘  └────resume─────┘ └─status 0─> idle
//! ```
//!
//! An invalid write is not an error and is dropped. `status` holds the driver's states, `queue` the rules for
//! rings, `register` the map of offsets.

use std::io;
use std::sync::Arc;

use vmm_sys_util::eventfd::EventFd;

mod counts;
mod error;
mod interrupt;
mod lifecycle;
mod page;
mod queue;
mod register;
mod snapshot;
mod status;
#[cfg(test)]
mod tests;

pub use error::TransportError;
pub use interrupt::InterruptLine;
use interrupt::MmioInterrupt;
pub use page::RegisterPage;
pub use queue::QueueRegisters;
use register::Register;
pub use snapshot::TransportSnapshot;
use status::{Status, Step};

use crate::virtio::{GuestMemory, VirtioDevice};

/// "virt", little endian.
const MAGIC: u32 = 0x7472_6976;
/// The register layout of virtio 1.0 and later.
const VERSION: u32 = 2;
/// Drivers accept any value. The guest kernel's driver knows this one (guest-image/kernel/build.sh): it
/// notifies queues at the slot's doorbell, and acknowledges no used buffers. A kernel without those lines
/// writes both here.
const VENDOR: u32 = u32::from_le_bytes(*b"pod2");

/// The transport's way to connect notifications of a `queue` to an `event` without passing a vCPU thread
/// (KVM's ioeventfd, a 32-bit write of the queue's number at the slot's doorbell, an I/O port).
pub trait QueueEvents: Send {
    /// From now on a notification of `queue` writes `event`.
    fn register(&self, event: &EventFd, queue: u16) -> io::Result<()>;
    /// Ends this, with the same `event` as at registration.
    fn unregister(&self, event: &EventFd, queue: u16) -> io::Result<()>;
}

/// The activity of the device in the slot.
#[derive(Debug)]
enum Activity {
    /// Not activated.
    Idle,
    /// Activated, with one notification event per queue.
    Running(Vec<EventFd>),
    /// Activated once, now stopped; the queue registers hold its positions.
    Paused,
}

/// One slot: registers, interrupt and perhaps a device. The VM keeps it behind its own lock.
pub struct MmioTransport {
    memory: GuestMemory,
    page: Arc<RegisterPage>,
    interrupt: Arc<MmioInterrupt>,
    events: Box<dyn QueueEvents>,
    device: Option<Box<dyn VirtioDevice>>,
    activity: Activity,
    status: Status,
    device_features_select: u32,
    driver_features: u64,
    driver_features_select: u32,
    queue_select: u32,
    shared_memory_select: u32,
    queues: Vec<QueueRegisters>,
    activation_failures: u64,
}

impl std::fmt::Debug for MmioTransport {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("MmioTransport")
            .field("device", &self.device)
            .field("activity", &self.activity)
            .field("status", &self.status)
            .field("driver_features", &self.driver_features)
            .field("queues", &self.queues)
            .finish_non_exhaustive()
    }
}

impl MmioTransport {
    /// Returns an empty slot. `irq` is the slot's line; `events` registers ioeventfds for this slot's
    /// address. The guest reads `page` at this address.
    pub fn new(
        memory: GuestMemory,
        page: RegisterPage,
        irq: Arc<dyn InterruptLine>,
        events: Box<dyn QueueEvents>,
    ) -> Self {
        let page = Arc::new(page);
        let transport = MmioTransport {
            memory,
            interrupt: MmioInterrupt::new(irq, page.clone()),
            page,
            events,
            device: None,
            activity: Activity::Idle,
            status: Status::default(),
            device_features_select: 0,
            driver_features: 0,
            driver_features_select: 0,
            queue_select: 0,
            shared_memory_select: 0,
            queues: Vec::new(),
            activation_failures: 0,
        };
        transport.publish();
        transport
    }

    /// Returns the device ID of the plugged device; 0 for an empty slot.
    pub fn device_id(&self) -> u32 {
        self.device.as_ref().map_or(0, |device| device.device_id())
    }

    /// Returns true if the driver has activated the device and it has not been paused.
    pub fn is_running(&self) -> bool {
        matches!(self.activity, Activity::Running(_))
    }

    /// Returns the number of failed activations in this slot's life. The guest can drive this up at will.
    #[cfg(test)]
    pub(crate) fn activation_failures(&self) -> u64 {
        self.activation_failures
    }

    /// Handles a write by the guest at `offset` into the slot.
    pub fn write(&mut self, offset: u64, data: &[u8]) {
        let Some(device) = &mut self.device else { return };
        match Register::at(offset, data.len()) {
            Some(Register::Config(offset)) => device.write_config(offset, data),
            // The page has the status itself.
            Some(Register::InterruptAcknowledge) => {
                self.interrupt.acknowledge(data.try_into().map_or(0, u32::from_le_bytes));
                return;
            }
            Some(register) => {
                if let Ok(bytes) = <[u8; 4]>::try_from(data) {
                    self.write_register(register, u32::from_le_bytes(bytes));
                }
            }
            None => return,
        }
        self.publish();
    }

    /// Puts all registers into the guest-readable page.
    pub(super) fn publish(&self) {
        for offset in register::READABLE {
            if let Some(register) = Register::at(offset.into(), size_of::<u32>()) {
                self.page.put(offset, self.read_register(register));
            }
        }
        self.publish_config();
    }

    fn publish_config(&self) {
        self.page.put_config(|config| match &self.device {
            Some(device) => device.read_config(0, config),
            None => config.fill(0),
        });
    }

    fn read_register(&self, register: Register) -> u32 {
        match register {
            Register::Magic => return MAGIC,
            Register::Version => return VERSION,
            Register::Vendor => return VENDOR,
            _ => {}
        }
        let Some(device) = &self.device else { return 0 };
        match register {
            Register::DeviceId => device.device_id(),
            Register::DeviceFeatures => half(device.features(), self.device_features_select),
            Register::QueueSizeMax => self.queue().map_or(0, |queue| u32::from(queue.max_size)),
            Register::QueueReady => self.queue().map_or(0, |queue| u32::from(queue.ready)),
            Register::Status => u32::from(self.status.bits()),
            Register::SharedLengthLow => half(self.shared_region().1, 0),
            Register::SharedLengthHigh => half(self.shared_region().1, 1),
            Register::SharedBaseLow => half(self.shared_region().0, 0),
            Register::SharedBaseHigh => half(self.shared_region().0, 1),
            _ => 0,
        }
    }

    fn write_register(&mut self, register: Register, value: u32) {
        match register {
            Register::DeviceFeaturesSelect => self.device_features_select = value,
            Register::DriverFeaturesSelect => self.driver_features_select = value,
            Register::DriverFeatures => self.choose_features(value),
            Register::QueueSelect => self.queue_select = value,
            Register::QueueNotify => self.notify(value),
            Register::Status => self.write_status(value),
            Register::SharedSelect => self.shared_memory_select = value,
            other => self.write_queue(other, value),
        }
    }

    fn choose_features(&mut self, value: u32) {
        if !self.status.negotiating() {
            return;
        }
        let value = u64::from(value);
        match self.driver_features_select {
            0 => self.driver_features = self.driver_features & !u64::from(u32::MAX) | value,
            1 => self.driver_features = self.driver_features & u64::from(u32::MAX) | value << 32,
            _ => {}
        }
    }

    fn write_queue(&mut self, register: Register, value: u32) {
        if !self.status.queues_open() {
            return;
        }
        let memory = &self.memory;
        let Some(queue) =
            usize::try_from(self.queue_select).ok().and_then(|index| self.queues.get_mut(index))
        else {
            return;
        };
        if register == Register::QueueReady {
            queue.ready = value == 1 && queue.is_valid(memory);
            return;
        }
        // A ready queue stays as it was checked.
        if queue.ready {
            return;
        }
        match register {
            Register::QueueSize => queue.set_size(value),
            Register::DescriptorsLow => set_half(&mut queue.desc_table, 0, value),
            Register::DescriptorsHigh => set_half(&mut queue.desc_table, 1, value),
            Register::DriverLow => set_half(&mut queue.avail_ring, 0, value),
            Register::DriverHigh => set_half(&mut queue.avail_ring, 1, value),
            Register::DeviceLow => set_half(&mut queue.used_ring, 0, value),
            Register::DeviceHigh => set_half(&mut queue.used_ring, 1, value),
            _ => {}
        }
    }

    fn write_status(&mut self, value: u32) {
        let offered = self.device.as_ref().map_or(0, |device| device.features());
        match self.status.write(value, offered, self.driver_features) {
            Step::Nothing => {}
            Step::Reset => self.reset(),
            Step::Activate => self.activate_for_driver(),
        }
    }

    /// Handles the driver's notification of the queue with this number.
    pub fn notify(&mut self, value: u32) {
        let (Activity::Running(events), Some(device)) = (&self.activity, &mut self.device) else { return };
        let Ok(index) = u16::try_from(value) else { return };
        let Some(event) = events.get(usize::from(index)) else { return };
        if device.uses_queue_event(index) {
            // Reached only if no ioeventfd caught the write. The event can only be refused when its counter
            // is full, and then it is readable already.
            let _ = event.write(1);
        } else {
            device.notify(index);
            // A request may have changed the configuration, and the driver reads it without an exit.
            self.publish_config();
        }
    }

    fn queue(&self) -> Option<&QueueRegisters> {
        self.queues.get(usize::try_from(self.queue_select).ok()?)
    }

    /// Returns the selected region, or all ones for a missing one, as the specification requires.
    fn shared_region(&self) -> (u64, u64) {
        let id = u8::try_from(self.shared_memory_select).ok();
        let device = self.device.as_ref();
        device
            .zip(id)
            .and_then(|(device, id)| device.shared_memory_region(id))
            .unwrap_or((u64::MAX, u64::MAX))
    }
}

/// Returns the selected 32 bits of `value`: 0 the low ones, 1 the high ones, others none.
fn half(value: u64, select: u32) -> u32 {
    match select {
        0 => value as u32,
        1 => (value >> 32) as u32,
        _ => 0,
    }
}

fn set_half(value: &mut u64, select: u32, bits: u32) {
    let shift = 32 * select;
    *value = *value & !(u64::from(u32::MAX) << shift) | u64::from(bits) << shift;
}
