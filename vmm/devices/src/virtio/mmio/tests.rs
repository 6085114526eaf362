//! The transport as a driver sees it, with a device recording its calls.

mod counts;
mod events;

use std::io;
use std::sync::{Arc, Mutex};

use virtio_queue::{Queue, QueueT as _};
use vm_memory::{Bytes as _, GuestAddress, GuestRegionMmap, MmapRegion, VolatileMemory as _};
use vmm_sys_util::eventfd::{EFD_NONBLOCK, EventFd};

use super::status::VERSION_1;
use super::{MmioTransport, QueueEvents, RegisterPage, TransportError, TransportSnapshot};
use crate::virtio::{Activation, Counts, DeviceError, GuestMemory, VirtioDevice};

/// Bytes of a slot.
const PAGE: usize = 0x1000;

#[derive(Debug, Default)]
struct Seen {
    active: Option<Activation>,
    notified: Vec<u16>,
    resets: u32,
    restored: Option<serde_json::Value>,
    registered: Vec<u16>,
}

#[derive(Debug, Default, Clone)]
struct Recorder {
    seen: Arc<Mutex<Seen>>,
    events: bool,
    without_event: Option<u16>,
    broken: bool,
}

impl VirtioDevice for Recorder {
    fn device_id(&self) -> u32 {
        4
    }
    fn features(&self) -> u64 {
        VERSION_1 | 1 << 29 | 0b10
    }
    fn queue_sizes(&self) -> &[u16] {
        &[16, 8]
    }
    fn uses_queue_event(&self, index: u16) -> bool {
        self.events && Some(index) != self.without_event
    }
    fn read_config(&self, offset: u64, data: &mut [u8]) {
        // Each notification changes it.
        let notified = self.seen.lock().unwrap().notified.len();
        for (index, byte) in data.iter_mut().enumerate() {
            *byte = (offset as usize + index + 16 * notified) as u8;
        }
    }
    fn activate(&mut self, activation: Activation) -> Result<(), DeviceError> {
        if self.broken {
            return Err(DeviceError { device: "test", message: "broken".into() });
        }
        self.seen.lock().unwrap().active = Some(activation);
        Ok(())
    }
    fn notify(&mut self, index: u16) {
        self.seen.lock().unwrap().notified.push(index);
    }
    fn counts(&self) -> Counts {
        Counts { faults: 3, ..Counts::default() }
    }
    fn request_queues(&self) -> &'static [usize] {
        &[1]
    }
    fn reset(&mut self) {
        let mut seen = self.seen.lock().unwrap();
        seen.active = None;
        seen.resets += 1;
    }
    fn pause(&mut self) -> Option<Vec<Queue>> {
        self.seen.lock().unwrap().active.take().map(|activation| activation.queues)
    }
    fn save(&self) -> serde_json::Value {
        serde_json::json!({ "drawn": 7 })
    }
    fn restore(&mut self, state: &serde_json::Value) -> Result<(), DeviceError> {
        self.seen.lock().unwrap().restored = Some(state.clone());
        Ok(())
    }
}

#[derive(Debug)]
struct Events(Arc<Mutex<Seen>>);

impl QueueEvents for Events {
    fn register(&self, _event: &EventFd, queue: u16) -> io::Result<()> {
        self.0.lock().unwrap().registered.push(queue);
        Ok(())
    }
    fn unregister(&self, _event: &EventFd, queue: u16) -> io::Result<()> {
        self.0.lock().unwrap().registered.retain(|known| *known != queue);
        Ok(())
    }
}

struct Slot {
    transport: MmioTransport,
    page: Arc<MmapRegion>,
    irq: EventFd,
    recorder: Recorder,
}

fn memory() -> GuestMemory {
    GuestMemory::new(vec![GuestRegionMmap::from_range(GuestAddress(0), 0x1_0000, None).unwrap()]).unwrap()
}

fn empty(recorder: Recorder) -> Slot {
    let irq = EventFd::new(EFD_NONBLOCK).unwrap();
    let events = Box::new(Events(recorder.seen.clone()));
    let page = Arc::new(MmapRegion::new(PAGE).unwrap());
    let registers = RegisterPage::new(page.clone(), 0);
    let transport = MmioTransport::new(memory(), registers, Arc::new(irq.try_clone().unwrap()), events);
    Slot { transport, page, irq, recorder }
}

fn plugged(recorder: Recorder) -> Slot {
    let mut slot = empty(recorder.clone());
    slot.transport.plug(Box::new(recorder)).unwrap();
    slot
}

impl Slot {
    /// Reads a register as the guest does: from its page, and from nothing of the transport.
    fn get(&self, offset: usize) -> u32 {
        let mut data = [0xaa; 4];
        self.page.as_volatile_slice().read_slice(&mut data, offset).unwrap();
        u32::from_le_bytes(data)
    }

    fn set(&mut self, offset: u64, value: u32) {
        self.transport.write(offset, &value.to_le_bytes());
    }

    fn negotiate(&mut self, low: u32) {
        self.set(0x70, 1);
        self.set(0x70, 3);
        self.set(0x24, 0);
        self.set(0x20, low);
        self.set(0x24, 1);
        self.set(0x20, 1);
        self.set(0x70, 11);
    }

    fn queue(&mut self, index: u32, base: u32) {
        self.set(0x30, index);
        self.set(0x38, 8);
        self.set(0x80, base);
        self.set(0x90, base + 0x400);
        self.set(0xa0, base + 0x800);
        self.set(0x44, 1);
    }

    fn start(&mut self) {
        self.negotiate(1 << 29);
        self.queue(0, 0x1000);
        self.queue(1, 0x2000);
        self.set(0x70, 15);
    }
}

#[test]
fn an_empty_slot_is_a_placeholder() {
    let mut slot = empty(Recorder::default());
    assert_eq!([slot.get(0), slot.get(4), slot.get(8)], [0x7472_6976, 2, 0]);
    slot.set(0x70, 1);
    assert_eq!(slot.get(0x70), 0);
    assert!(matches!(slot.transport.unplug(), Err(TransportError::Empty)));
}

#[test]
fn a_driver_brings_a_device_up() {
    let mut slot = plugged(Recorder::default());
    assert_eq!(slot.get(8), 4);
    slot.set(0x14, 1);
    assert_eq!(slot.get(0x10), 1);
    slot.start();
    assert_eq!(slot.get(0x70), 15);
    let seen = slot.recorder.seen.lock().unwrap();
    let activation = seen.active.as_ref().unwrap();
    assert_eq!(activation.features, VERSION_1 | 1 << 29);
    let queue = &activation.queues[0];
    assert!(queue.ready() && queue.event_idx_enabled());
    assert_eq!((queue.size(), queue.used_ring()), (8, 0x1800));
}

#[test]
fn notifications_reach_the_device_only_while_it_runs() {
    let mut slot = plugged(Recorder::default());
    slot.set(0x50, 0);
    slot.start();
    for value in [1, 2, 0x1_0000] {
        slot.set(0x50, value);
    }
    assert_eq!(slot.recorder.seen.lock().unwrap().notified, [1]);
}

#[test]
fn a_failed_activation_needs_a_reset_and_interrupts() {
    let mut slot = plugged(Recorder { broken: true, events: true, ..Recorder::default() });
    slot.start();
    assert_eq!(slot.get(0x70), 15 | 64);
    assert_eq!(slot.get(0x60), 2);
    assert_eq!(slot.irq.read().unwrap(), 1);
    assert!(slot.recorder.seen.lock().unwrap().registered.is_empty());
    slot.set(0x64, 2);
    assert_eq!(slot.get(0x60), 0);
    slot.set(0x70, 0);
    assert_eq!(slot.get(0x70), 0);
}

#[test]
fn the_interrupt_status_is_set_before_the_line() {
    let mut slot = plugged(Recorder::default());
    slot.start();
    let interrupt = slot.recorder.seen.lock().unwrap().active.as_ref().unwrap().interrupt.clone();
    interrupt.used_buffer().unwrap();
    assert_eq!((slot.get(0x60), slot.irq.read().unwrap()), (1, 1));
    let generation = slot.get(0xfc);
    interrupt.config_changed(&[9, 8, 7, 6, 5]).unwrap();
    assert_eq!(slot.get(0x60), 3);
    assert_ne!(slot.get(0xfc), generation);
    assert_eq!([slot.get(0x100), slot.get(0x104), slot.get(0x108)], [0x0607_0809, 5, 0]);
}

#[test]
fn a_configuration_that_changes_while_another_is_read_stays() {
    let mapping = Arc::new(MmapRegion::new(PAGE).unwrap());
    let page = RegisterPage::new(mapping, 0);
    let late = std::sync::Once::new();
    page.put_config(|config| {
        config.fill(1);
        if late.is_completed() {
            config[0] = 2;
        }
        late.call_once(|| page.renew_config(&[2]));
    });
    let mut byte = [0];
    page.read(0x100, &mut byte);
    assert_eq!(byte, [2]);
}

/// The guest reads it from the page, without an exit.
#[test]
fn a_configuration_that_a_request_changes_is_seen_at_once() {
    let mut slot = plugged(Recorder::default());
    slot.start();
    assert_eq!(slot.get(0x100), 0x0302_0100);
    slot.transport.notify(0);
    assert_eq!(slot.get(0x100), 0x1312_1110);
}

#[test]
fn a_driver_that_never_acknowledges_hears_of_every_buffer() {
    let mut slot = plugged(Recorder::default());
    slot.start();
    let interrupt = slot.recorder.seen.lock().unwrap().active.as_ref().unwrap().interrupt.clone();
    for _ in 0..2 {
        interrupt.used_buffer().unwrap();
        assert_eq!(slot.irq.read().unwrap(), 1);
        assert_eq!(slot.get(0x60), 1);
    }
}

/// The guest kernel's driver leaves acknowledgements out, and rings doorbells, for this vendor alone.
#[test]
fn the_vendor_is_the_one_that_the_guest_kernel_knows() {
    let build = include_str!("../../../../../guest-image/kernel/build.sh");
    assert!(build.contains(&format!("id.vendor == {:#x}", plugged(Recorder::default()).get(0x0c))));
}

#[test]
fn a_queue_that_makes_no_sense_never_gets_ready() {
    let mut slot = plugged(Recorder::default());
    slot.negotiate(0);
    for (size, base, high) in [(8, 0x1001, 0), (8, 0xff00, 0), (8, 0x1000, 1), (8, 0, 0)] {
        slot.set(0x30, 0);
        slot.set(0x84, high);
        slot.queue(0, base);
        slot.set(0x38, size);
        assert_eq!(slot.get(0x44), 0, "{base:#x}");
    }
    slot.set(0x84, 0);
    slot.set(0x30, 9);
    assert_eq!(slot.get(0x34), 0);
    slot.set(0x44, 1);
    assert_eq!(slot.get(0x44), 0);
}

#[test]
fn queues_are_closed_before_features_and_after_driver_ok() {
    let mut slot = plugged(Recorder::default());
    slot.queue(0, 0x1000);
    assert_eq!(slot.get(0x44), 0);
    slot.start();
    slot.set(0x30, 0);
    slot.set(0x44, 0);
    assert_eq!(slot.get(0x44), 1);
}

#[test]
fn strange_widths_and_offsets_do_nothing() {
    let mut slot = plugged(Recorder::default());
    for offset in [1, 2, 0x54, 0xc0, 0x1000, u64::MAX] {
        slot.set(offset, u32::MAX);
    }
    for width in [0, 1, 2, 3, 5, 8, 16] {
        slot.transport.write(0x70, &vec![1; width]);
    }
    assert_eq!([slot.get(0x54), slot.get(0xc0), slot.get(0x70)], [0, 0, 0]);
    assert_eq!(slot.get(0x104), 0x0706_0504, "the device's configuration");
}

#[test]
fn an_absent_shared_memory_region_reads_all_ones() {
    let mut slot = plugged(Recorder::default());
    for select in [0, 3, 0x100] {
        slot.set(0xac, select);
        assert!([0xb0, 0xb4, 0xb8, 0xbc].into_iter().all(|offset| slot.get(offset) == u32::MAX));
    }
}

#[test]
fn a_slot_filled_again_shows_a_fresh_device() {
    let mut slot = plugged(Recorder::default());
    slot.start();
    slot.recorder.seen.lock().unwrap().active.as_ref().unwrap().interrupt.used_buffer().unwrap();
    slot.transport.unplug().unwrap();
    assert!(slot.recorder.seen.lock().unwrap().active.is_none());
    assert_eq!([slot.get(8), slot.get(0x70), slot.get(0x34)], [0, 0, 0]);
    slot.transport.plug(Box::new(slot.recorder.clone())).unwrap();
    assert_eq!([slot.get(8), slot.get(0x70), slot.get(0x60), slot.get(0x44)], [4, 0, 0, 0]);
    let again = Box::new(slot.recorder.clone());
    assert!(matches!(slot.transport.plug(again), Err(TransportError::Occupied { device_id: 4 })));
    slot.start();
    assert_eq!(slot.get(0x70), 15);
}

#[test]
fn state_makes_the_round_trip_through_json() {
    let mut slot = plugged(Recorder::default());
    slot.start();
    assert!(matches!(slot.transport.save(), Err(TransportError::Running)));
    {
        let mut seen = slot.recorder.seen.lock().unwrap();
        let active = seen.active.as_mut().unwrap();
        active.queues[1].set_next_avail(5);
        active.queues[1].set_next_used(4);
        active.interrupt.used_buffer().unwrap();
    }
    slot.transport.pause().unwrap();
    let saved = slot.transport.save().unwrap();
    let text = serde_json::to_string(&saved).unwrap();

    let mut other = plugged(Recorder { events: true, ..Recorder::default() });
    let state: TransportSnapshot = serde_json::from_str(&text).unwrap();
    other.transport.restore(&state).unwrap();
    assert_eq!(other.transport.save().unwrap(), saved);
    assert!(!other.transport.is_running());
    other.transport.resume().unwrap();
    assert_eq!((other.get(0x60), other.irq.read().unwrap() > 0), (1, true));
    let seen = other.recorder.seen.lock().unwrap();
    let queues = &seen.active.as_ref().unwrap().queues;
    assert_eq!((queues[1].next_avail(), queues[1].next_used(), queues[1].size()), (5, 4, 8));
    assert_eq!(seen.restored, Some(serde_json::json!({ "drawn": 7 })));
    assert_eq!(seen.registered, [0, 1]);
}

#[test]
fn a_state_that_does_not_fit_is_refused() {
    let mut slot = plugged(Recorder::default());
    slot.start();
    slot.transport.pause().unwrap();
    let saved = slot.transport.save().unwrap();
    let mut other = plugged(Recorder::default());
    let mut wrong = saved.clone();
    wrong.device_id = 2;
    assert!(matches!(other.transport.restore(&wrong), Err(TransportError::Mismatch { .. })));
    let mut wrong = saved.clone();
    wrong.queues[0].desc_table = 0xfff0;
    assert!(matches!(other.transport.restore(&wrong), Err(TransportError::Mismatch { .. })));
    let mut wrong = saved.clone();
    wrong.driver_features |= 1;
    assert!(matches!(other.transport.restore(&wrong), Err(TransportError::Mismatch { .. })));
    let mut wrong = saved;
    wrong.queues.pop();
    assert!(matches!(other.transport.restore(&wrong), Err(TransportError::Mismatch { .. })));
}

#[test]
fn no_sequence_of_accesses_panics() {
    use proptest::prelude::*;
    let access =
        (0u64..0x120, 0usize..9, prop_oneof![Just(0u32), Just(1), Just(3), Just(11), Just(15), any::<u32>()]);
    proptest!(|(accesses in proptest::collection::vec(access, 0..200))| {
        let mut slot = plugged(Recorder::default());
        for (offset, width, value) in accesses {
            let mut data = [0u8; 8];
            data[..4].copy_from_slice(&value.to_le_bytes());
            slot.transport.write(offset & !3, &data[..4]);
            slot.transport.write(offset, &data[..width]);
        }
    });
}
