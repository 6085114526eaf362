//! One slot as a guest has it: the registers that it writes, the page that it reads, and the driver's end of each queue.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use vm_memory::{Bytes as _, MmapRegion, VolatileMemory as _};
use vmm_devices::virtio::mmio::{InterruptLine, MmioTransport, QueueEvents, RegisterPage, TransportSnapshot};
use vmm_devices::virtio::{GuestMemory, VirtioDevice};
use vmm_sys_util::eventfd::EventFd;

use crate::queue::{DriverQueue, ENTRIES, QUEUE_BYTES};

/// Queues of a device that the driver sets up.
pub const QUEUES_MAX: u64 = 4;

/// Where the queues of slot 0 lie; those of the others follow.
const RINGS: u64 = 0x800;

/// Registers (virtio 1.2, section 4.2.2).
const DEVICE_FEATURES: usize = 0x10;
const DEVICE_FEATURES_SELECT: u64 = 0x14;
const DRIVER_FEATURES: u64 = 0x20;
const DRIVER_FEATURES_SELECT: u64 = 0x24;
const QUEUE_SELECT: u64 = 0x30;
const QUEUE_SIZE: u64 = 0x38;
const QUEUE_SIZE_MAX: usize = 0x34;
const QUEUE_READY: u64 = 0x44;
const STATUS: u64 = 0x70;
const QUEUE_ADDRESSES: [u64; 3] = [0x80, 0x90, 0xa0];

/// An interrupt line that counts.
#[derive(Debug, Default)]
pub struct Line(AtomicU64);

impl InterruptLine for Line {
    fn pulse(&self) -> io::Result<()> {
        self.0.fetch_add(1, Ordering::SeqCst);
        Ok(())
    }
}

/// No notification passes the transport by.
#[derive(Debug)]
struct NoEvents;

impl QueueEvents for NoEvents {
    fn register(&self, _event: &EventFd, _queue: u16) -> io::Result<()> {
        Ok(())
    }

    fn unregister(&self, _event: &EventFd, _queue: u16) -> io::Result<()> {
        Ok(())
    }
}

/// See the module.
#[derive(Debug)]
pub struct Slot {
    /// The device's side.
    pub transport: MmioTransport,
    registers: Arc<MmapRegion>,
    line: Arc<Line>,
    memory: GuestMemory,
    rings: u64,
    /// The driver's, as it has set them up.
    pub queues: Vec<DriverQueue>,
    /// What was saved last.
    pub saved: Option<TransportSnapshot>,
}

impl Slot {
    /// An empty slot.
    #[must_use]
    pub fn new(number: usize, memory: &GuestMemory) -> Slot {
        let registers = Arc::new(MmapRegion::new(4096).expect("a page"));
        let line = Arc::new(Line::default());
        let page = RegisterPage::new(registers.clone(), 0);
        let transport = MmioTransport::new(memory.clone(), page, line.clone(), Box::new(NoEvents));
        let rings = RINGS + number as u64 * QUEUES_MAX * QUEUE_BYTES;
        Slot { transport, registers, line, memory: memory.clone(), rings, queues: Vec::new(), saved: None }
    }

    /// Interrupts so far.
    #[must_use]
    pub fn interrupts(&self) -> u64 {
        self.line.0.load(Ordering::SeqCst)
    }

    /// Reads a register as the guest does.
    #[must_use]
    pub fn read(&self, offset: usize) -> u32 {
        let register = self.registers.as_volatile_slice().load(offset & 0xffc, Ordering::Acquire);
        register.expect("the register lies in the page")
    }

    /// Writes a register. Nothing is expected of queues any more that the driver has not set up itself.
    pub fn write(&mut self, offset: u64, data: &[u8]) {
        self.transport.write(offset, data);
        // DRIVER_OK, and not DEVICE_NEEDS_RESET.
        if self.read(STATUS as usize) & 0x44 != 4 {
            self.queues.clear();
        }
    }

    fn put(&mut self, offset: u64, value: u32) {
        self.transport.write(offset, &value.to_le_bytes());
    }

    fn select_features(&mut self, high: u32) -> u32 {
        self.put(DEVICE_FEATURES_SELECT, high);
        self.put(DRIVER_FEATURES_SELECT, high);
        self.read(DEVICE_FEATURES)
    }

    /// Sets a device up as drivers do: with these of the features that it offers, and queues of this size, all but those that
    /// `left_out` has a bit for.
    pub fn set_up(&mut self, unwanted: u32, size: u16, left_out: u8) {
        self.put(STATUS, 0);
        self.queues.clear();
        self.put(STATUS, 1);
        self.put(STATUS, 3);
        for (high, unwanted) in [(0, unwanted), (1, 0)] {
            let offered = self.select_features(high);
            self.put(DRIVER_FEATURES, offered & !unwanted);
        }
        self.put(STATUS, 11);
        for number in 0..QUEUES_MAX {
            let base = self.rings + number * QUEUE_BYTES;
            self.put(QUEUE_SELECT, number as u32);
            if self.read(QUEUE_SIZE_MAX) == 0 {
                break;
            }
            crate::memory::write(&self.memory, base, &[0; QUEUE_BYTES as usize]);
            let queue = DriverQueue::new(base, size.min(ENTRIES));
            self.put(QUEUE_SIZE, queue.size().into());
            for (register, address) in QUEUE_ADDRESSES.into_iter().zip(queue.areas()) {
                self.put(register, address as u32);
                self.put(register + 4, (address >> 32) as u32);
            }
            self.put(QUEUE_READY, u32::from(left_out & 1 << number == 0));
            self.queues.push(queue);
        }
        self.put(STATUS, 15);
        if !self.transport.is_running() {
            self.queues.clear();
        }
    }

    /// Empties the slot, if there is a device.
    pub fn unplug(&mut self) {
        self.queues.clear();
        drop(self.transport.unplug());
    }

    /// Saves the device, puts `another` of its kind in its place, and lets that one go on; or lets it begin anew, where it cannot.
    pub fn replace(&mut self, another: Box<dyn VirtioDevice>, with_older: bool) {
        let _ = self.transport.pause();
        let Ok(saved) = self.transport.save() else { return };
        let text = serde_json::to_vec(&saved).expect("what was saved can be written");
        let read = serde_json::from_slice(&text).expect("what was written can be read");
        assert!(saved == read, "what was saved changes on its way");
        let chosen = self.saved.replace(saved).filter(|_| with_older).unwrap_or(read);
        drop(self.transport.unplug());
        self.transport.plug(another).expect("the slot is empty");
        if with_older {
            self.queues.clear();
        }
        if self.transport.restore(&chosen).is_err() || self.transport.resume().is_err() {
            self.queues.clear();
        }
    }
}
