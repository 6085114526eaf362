//! Devices behind their transport: the driver's accesses from the first register to the last, a VM's
//! plug, pause, save, restore and unplug in between.

use std::fs::File;
use std::io;
use std::sync::{Arc, Mutex};

use vm_memory::{Bytes as _, MmapRegion, VolatileMemory as _};
use vmm_sys_util::eventfd::{EFD_NONBLOCK, EventFd};

use super::GuestMemory;
use super::blk::{Blk, FullDisks};
use super::mmio::{MmioTransport, QueueEvents, RegisterPage, TransportSnapshot};
use super::testing::{Driver, Line, WRITE, memory};

/// Stands for KVM: records the event for each notification.
#[derive(Clone, Default)]
struct Kvm(Arc<Mutex<Vec<(u16, EventFd)>>>);

impl QueueEvents for Kvm {
    fn register(&self, event: &EventFd, queue: u16) -> io::Result<()> {
        self.0.lock().unwrap().push((queue, event.try_clone()?));
        Ok(())
    }
    fn unregister(&self, _event: &EventFd, queue: u16) -> io::Result<()> {
        self.0.lock().unwrap().retain(|(known, _)| *known != queue);
        Ok(())
    }
}

impl Kvm {
    fn notify(&self, queue: u16) {
        let registered = self.0.lock().unwrap();
        let (_, event) = registered.iter().find(|(known, _)| *known == queue).unwrap();
        event.write(1).unwrap();
    }
}

struct Slot {
    transport: MmioTransport,
    page: Arc<MmapRegion>,
    kvm: Kvm,
    line: Line,
}

fn slot(memory: &GuestMemory) -> Slot {
    let irq = EventFd::new(EFD_NONBLOCK).unwrap();
    let line = Line::over(irq.try_clone().unwrap());
    let kvm = Kvm::default();
    let page = Arc::new(MmapRegion::new(0x1000).unwrap());
    let registers = RegisterPage::new(page.clone(), 0);
    let transport = MmioTransport::new(memory.clone(), registers, Arc::new(irq), Box::new(kvm.clone()));
    Slot { transport, page, kvm, line }
}

impl Slot {
    fn set(&mut self, offset: u64, value: u32) {
        self.transport.write(offset, &value.to_le_bytes());
    }

    fn get(&self, offset: usize) -> u32 {
        let mut data = [0; 4];
        self.page.as_volatile_slice().read_slice(&mut data, offset).unwrap();
        u32::from_le_bytes(data)
    }

    /// Does the same as Linux on probe, with all offered features.
    fn probe(&mut self, driver: &Driver) {
        for status in [0, 1, 3] {
            self.set(0x70, status);
        }
        for select in [0, 1] {
            self.set(0x14, select);
            self.set(0x24, select);
            let offered = self.get(0x10);
            // Without EVENT_IDX each completion interrupts, and the test waits for the interrupt.
            self.set(0x20, if select == 0 { offered & !(1 << 29) } else { offered });
        }
        self.set(0x70, 11);
        assert_eq!(self.get(0x70), 11);
        self.set(0x30, 0);
        self.set(0x38, u32::from(Driver::SIZE));
        for (offset, part) in [(0x80, 0), (0x90, 0x400), (0xa0, 0x800)] {
            self.set(offset, driver.table() as u32 + part);
        }
        self.set(0x44, 1);
        self.set(0x70, 15);
        assert_eq!(self.get(0x70), 15);
    }

    /// Reads sector `sector` and returns its first byte.
    fn read_sector(&mut self, driver: &mut Driver, sector: u64) -> u8 {
        ask(driver, sector);
        self.kvm.notify(0);
        driver.wait_used(&self.line, 1);
        assert_eq!(self.get(0x60) & 1, 1);
        self.set(0x64, 1);
        driver.read::<1>(DATA)[0]
    }
}

const HEADER: u64 = 0x2_0000;
const DATA: u64 = 0x3_0000;

fn ask(driver: &mut Driver, sector: u64) {
    driver.write(HEADER, &[0; 8]);
    driver.write(HEADER + 8, &sector.to_le_bytes());
    driver.put(&[(HEADER, 16, 0), (DATA, 513, WRITE)]);
}

fn disk(file: File) -> Blk {
    Blk::new(file, false, &FullDisks::new().unwrap()).unwrap()
}

fn image() -> File {
    use std::io::Write as _;
    let mut file = tempfile::tempfile().unwrap();
    for sector in 0..64u8 {
        file.write_all(&[sector; 512]).unwrap();
    }
    file
}

#[test]
fn a_disk_is_plugged_driven_reset_and_unplugged() {
    let memory = memory();
    let mut slot = slot(&memory);
    slot.transport.plug(Box::new(disk(image()))).unwrap();
    for _ in 0..3 {
        let mut driver = Driver::new(&memory, 0);
        driver.forget();
        slot.probe(&driver);
        assert_eq!(slot.read_sector(&mut driver, 7), 7);
        slot.set(0x70, 0);
        assert!(slot.kvm.0.lock().unwrap().is_empty());
    }
    slot.transport.unplug().unwrap();
    assert_eq!(slot.get(8), 0);
}

#[test]
fn a_saved_disk_goes_on_in_another_vm() {
    let memory = memory();
    let mut driver = Driver::new(&memory, 0);
    let (mut here, image) = (slot(&memory), image());
    here.transport.plug(Box::new(disk(image.try_clone().unwrap()))).unwrap();
    here.probe(&driver);
    assert_eq!(here.read_sector(&mut driver, 1), 1);
    here.transport.pause().unwrap();
    ask(&mut driver, 9);
    let saved = serde_json::to_string(&here.transport.save().unwrap()).unwrap();
    drop(here);

    let state: TransportSnapshot = serde_json::from_str(&saved).unwrap();
    let mut there = slot(&memory);
    there.transport.plug(Box::new(disk(image))).unwrap();
    there.transport.restore(&state).unwrap();
    there.transport.resume().unwrap();
    driver.wait_used(&there.line, 1);
    assert_eq!(driver.read::<1>(DATA), [9]);
    assert_eq!(there.read_sector(&mut driver, 12), 12);
}

#[test]
fn a_disk_whose_queue_is_not_set_up_needs_a_reset() {
    let memory = memory();
    let mut slot = slot(&memory);
    slot.transport.plug(Box::new(disk(image()))).unwrap();
    for (offset, value) in [(0x70, 1), (0x70, 3), (0x24, 1), (0x20, 1), (0x70, 11), (0x70, 15)] {
        slot.set(offset, value);
    }
    assert_eq!(slot.get(0x70), 15 | 64);
    assert_eq!(slot.transport.activation_failures(), 1);
    let mut driver = Driver::new(&memory, 0);
    slot.set(0x70, 0);
    slot.set(0x64, 3);
    slot.probe(&driver);
    assert_eq!(slot.read_sector(&mut driver, 3), 3);
}
