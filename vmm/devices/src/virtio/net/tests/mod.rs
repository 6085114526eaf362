//! The interface as a driver sees it, with a packet socket in the place of a tap.

mod control;
mod merged;
mod signals;

use std::io::{self, ErrorKind};
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex};

use nix::sys::socket::{AddressFamily, MsgFlags, SockFlag, SockType, recv, send, socketpair};
use proptest::prelude::*;
use std::os::fd::AsRawFd as _;
use virtio_bindings::virtio_net as spec;
use virtio_queue::QueueT as _;
use vm_memory::{Bytes as _, GuestAddress, GuestRegionMmap, MemoryRegionAddress};
use vmm_sys_util::eventfd::EventFd;

use super::Net;
use super::receive::Filter;
use super::tap::TapSettings;
use super::worker::NetWorker;
use crate::virtio::testing::{
    Driver, IMAGE, Line, NEXT, WRITE, activation, entries, heads, image, image_content, memory,
};
use crate::virtio::{GuestMemory, VirtioDevice};

const MAC: [u8; 6] = [2, 0, 0, 0, 0, 1];
const BUFFER: u64 = 0x2_0000;
const PLAIN: u64 = 0;
const MERGE: u64 = 1 << spec::VIRTIO_NET_F_MRG_RXBUF;

/// Filters set by the interface on its tap, in order.
#[derive(Debug, Default)]
struct Settings {
    filters: Mutex<Vec<Option<Filter>>>,
    /// A tap without filters.
    refuses: bool,
    /// Locked while the kernel changes other networks. A filter waits for them.
    others: Mutex<()>,
}

impl TapSettings for Settings {
    fn offload(&self, _tap: BorrowedFd<'_>, _offloads: u32) -> io::Result<()> {
        Ok(())
    }

    fn filter(&self, _tap: BorrowedFd<'_>, filter: Option<&Filter>) -> io::Result<()> {
        let _others = self.others.lock().unwrap();
        self.filters.lock().unwrap().push(filter.cloned());
        if self.refuses { Err(ErrorKind::Unsupported.into()) } else { Ok(()) }
    }
}

impl Settings {
    /// Returns the filters set since the last call.
    fn take(&self) -> Vec<Option<Filter>> {
        std::mem::take(&mut self.filters.lock().unwrap())
    }
}

struct Wire(OwnedFd);

impl Wire {
    fn send(&self, length: usize) {
        let frame: Vec<u8> = (0..length).map(|index| (index % 251) as u8).collect();
        assert_eq!(send(self.0.as_raw_fd(), &frame, MsgFlags::empty()).unwrap(), length);
    }

    fn receive(&self) -> Option<Vec<u8>> {
        let mut frame = vec![0; 0x2_0000];
        let length = recv(self.0.as_raw_fd(), &mut frame, MsgFlags::MSG_DONTWAIT).ok()?;
        frame.truncate(length);
        Some(frame)
    }
}

fn net() -> (Net, Wire) {
    let (net, wire, _settings) = net_with(Settings::default());
    (net, wire)
}

fn net_with(settings: Settings) -> (Net, Wire, Arc<Settings>) {
    let flags = SockFlag::SOCK_NONBLOCK | SockFlag::SOCK_CLOEXEC;
    let (here, there) = socketpair(AddressFamily::Unix, SockType::SeqPacket, None, flags).unwrap();
    let settings = Arc::new(settings);
    (Net::over(here, MAC, 1500, settings.clone()), Wire(there), settings)
}

struct Bench {
    memory: GuestMemory,
    worker: NetWorker,
    rx: Driver,
    tx: Driver,
    control: Driver,
    wire: Wire,
    settings: Arc<Settings>,
}

/// A worker driven by the test itself.
fn bench(features: u64) -> Bench {
    bench_with(features, Settings::default())
}

fn bench_with(features: u64, settings: Settings) -> Bench {
    let (net, wire, settings) = net_with(settings);
    let memory = memory();
    let [rx, tx, control] = [0, 1, 2].map(|index| Driver::new(&memory, index));
    let queues = vec![rx.queue(), tx.queue(), control.queue()];
    let (activation, _kicks) = activation(&memory, queues, &Line::new(), features);
    Bench { worker: net.back_end(activation).unwrap(), memory, rx, tx, control, wire, settings }
}

impl Bench {
    fn receive(&mut self) {
        self.worker.tap_ready = true;
        self.worker.receive();
    }

    fn give(&mut self, count: u64, bytes: u32) {
        self.worker.starved = false;
        for index in 0..count {
            self.rx.put(&[(BUFFER + 0x1000 * index, bytes, WRITE)]);
        }
    }
}

#[test]
fn a_frame_is_received_into_scattered_buffers() {
    let mut bench = bench(PLAIN);
    bench.rx.put(&[(BUFFER, 4, WRITE), (BUFFER + 0x100, 60, WRITE), (BUFFER + 0x200, 2000, WRITE)]);
    bench.wire.send(112);
    bench.receive();
    assert_eq!(bench.rx.take_used(), [(0, 112)]);
    assert_eq!(bench.rx.read::<4>(BUFFER), [0, 1, 2, 3]);
    // num buffers, at offset 10, is ours.
    assert_eq!(bench.rx.read::<10>(BUFFER + 0x100), [4, 5, 6, 7, 8, 9, 1, 0, 12, 13]);
    assert_eq!(bench.rx.read::<2>(BUFFER + 0x200), [64, 65]);
}

#[test]
fn a_long_frame_is_merged_over_chains() {
    let mut bench = bench(MERGE);
    bench.give(u64::from(Driver::SIZE) - 4, 100);
    bench.wire.send(250);
    bench.wire.send(60);
    bench.receive();
    assert_eq!(bench.rx.take_used(), [(0, 100), (1, 100), (2, 50), (3, 60)]);
    assert_eq!(bench.rx.read::<2>(BUFFER + 10), [3, 0]);
    assert_eq!(bench.rx.read::<2>(BUFFER + 0x1000), [100, 101]);
    assert_eq!(bench.rx.read::<2>(BUFFER + 0x3000 + 10), [1, 0]);
}

#[test]
fn frames_that_do_not_fit_are_dropped_and_counted() {
    let mut bench = bench(PLAIN);
    bench.give(2, 100);
    bench.wire.send(101);
    bench.wire.send(5);
    bench.wire.send(100);
    bench.receive();
    assert_eq!(bench.rx.take_used(), [(0, 100)]);
    assert_eq!(bench.worker.drops.counts(0).dropped_received, 2);
}

#[test]
fn without_buffers_frames_wait_in_the_tap() {
    let mut bench = bench(MERGE);
    bench.wire.send(60);
    bench.receive();
    assert!(bench.worker.starved && bench.worker.tap_ready);
    // Fewer than half of the queue and not enough for any frame: still waiting.
    bench.give(3, 100);
    bench.worker.starved = false;
    bench.receive();
    assert!(bench.worker.starved);
    bench.give(1, 2000);
    bench.worker.starved = false;
    bench.receive();
    assert_eq!(bench.rx.take_used(), [(0, 60)]);
    assert_eq!(bench.worker.drops.counts(0).dropped_received, 0);
}

#[test]
fn chains_held_ahead_are_available_again_after_a_pause() {
    let mut bench = bench(MERGE);
    bench.give(10, 200);
    // A malformed chain among them waits for its turn.
    bench.rx.put(&[(BUFFER, 200, 0)]);
    bench.give(2, 200);
    bench.wire.send(300);
    bench.receive();
    assert_eq!(bench.rx.take_used().len(), 2);
    let queue = bench.worker.rx.into_ring().into_queue();
    assert_eq!((queue.next_avail(), queue.next_used()), (2, 2));
}

#[test]
fn receive_chains_that_make_no_sense_are_given_back() {
    let mut bench = bench(MERGE);
    bench.rx.put(&[(BUFFER, 100, 0)]);
    bench.rx.put(&[(BUFFER, 11, WRITE)]);
    bench.rx.put(&[(1 << 45, 100, WRITE)]);
    bench.rx.descriptor(bench.rx.table(), 15, (BUFFER, 100, WRITE | NEXT, 15));
    bench.rx.offer(15);
    bench.rx.offer(Driver::SIZE);
    bench.wire.send(60);
    bench.receive();
    assert_eq!(bench.rx.take_used(), [(0, 0), (1, 0), (2, 0), (15, 0)]);
    assert!(bench.worker.starved);
    bench.rx.jump(3000);
    bench.worker.starved = false;
    bench.receive();
    assert!(bench.worker.starved);
}

#[test]
fn a_frame_is_sent_from_scattered_buffers() {
    let mut bench = bench(PLAIN);
    bench.tx.write(BUFFER, &[7; 100]);
    bench.tx.put(&[(BUFFER, 12, 0), (BUFFER + 12, 0, 0), (BUFFER + 12, 50, 0)]);
    bench.worker.transmit();
    assert_eq!(bench.tx.take_used(), [(0, 0)]);
    assert_eq!(bench.wire.receive().unwrap(), [7; 62]);
}

#[test]
fn a_frame_is_sent_from_an_image_and_none_is_received_into_one() {
    let mut bench = bench(PLAIN);
    image(&bench.memory);
    bench.tx.put(&[(BUFFER, 12, 0), (IMAGE + 7, 60, 0)]);
    bench.worker.transmit();
    assert_eq!(bench.wire.receive().unwrap()[12..], image_content()[7..67]);
    assert_eq!(bench.worker.drops.counts(0).dropped_sent, 0);
    bench.rx.put(&[(IMAGE, 2000, WRITE)]);
    bench.wire.send(60);
    bench.receive();
    assert_eq!(bench.rx.take_used(), [(0, 0)]);
    assert!(bench.worker.starved);
}

#[test]
fn a_chain_that_was_held_is_not_received_into_once_its_memory_was_given_back() {
    let mut bench = bench(MERGE);
    let room = Arc::new(GuestRegionMmap::from_range(GuestAddress(IMAGE), 0x1000, None).unwrap());
    bench.memory.set_plugged(&room, &[(0, 0x1000)]).unwrap();
    // The first is too short for any frame, so the second is held as well.
    bench.rx.put(&[(BUFFER, 100, WRITE)]);
    bench.rx.put(&[(IMAGE, 0x1000, WRITE)]);
    bench.wire.send(60);
    bench.receive();
    assert_eq!(bench.rx.take_used(), [(0, 60)]);
    bench.memory.set_plugged(&room, &[]).unwrap();
    bench.rx.put(&[(BUFFER, 2000, WRITE)]);
    bench.wire.send(60);
    bench.receive();
    assert_eq!(bench.rx.take_used(), [(1, 0), (2, 60)]);
    assert_eq!(room.read_obj::<u64>(MemoryRegionAddress(0)).unwrap(), 0);
}

#[test]
fn frames_that_make_no_sense_are_not_sent() {
    let mut bench = bench(PLAIN);
    bench.tx.put(&[(BUFFER, 25, 0)]);
    bench.tx.put(&[(BUFFER, 65_563, 0)]);
    bench.tx.put(&[(BUFFER, 60, WRITE)]);
    bench.tx.put(&[(BUFFER, 12, 0), (u64::MAX, 60, 0)]);
    bench.tx.descriptor(bench.tx.table(), 12, (BUFFER, 60, NEXT, 12));
    bench.tx.offer(12);
    bench.worker.transmit();
    assert_eq!(bench.tx.take_used().len(), 5);
    assert_eq!(bench.worker.drops.counts(0).dropped_sent, 5);
    assert!(bench.wire.receive().is_none());
    assert!(!bench.worker.tx_ready);
}

#[test]
fn frames_are_received_while_the_ring_goes_round() {
    let mut bench = bench(PLAIN);
    for _ in 0..5 {
        bench.give(15, 1600);
        (0..15).for_each(|_| bench.wire.send(60));
        bench.receive();
        assert_eq!(bench.rx.take_used().len(), 15);
    }
    assert_eq!(bench.worker.drops.counts(0).dropped_received, 0);
}

#[test]
fn a_closed_tap_is_counted_and_does_not_spin() {
    let mut bench = bench(PLAIN);
    bench.give(1, 1600);
    bench.tx.put(&[(BUFFER, 60, 0)]);
    drop(bench.wire);
    bench.worker.tap_ready = true;
    for _ in 0..100 {
        bench.worker.receive();
        bench.worker.transmit();
    }
    assert_eq!(bench.worker.drops.counts(0).dropped_sent, 1);
    // A closed socket reads as a frame of length 0, unlike a tap. It is dropped, never delivered.
    assert!(bench.rx.take_used().is_empty());
}

#[test]
fn the_configuration_has_address_link_and_mtu() {
    let (net, _wire) = net();
    let mut config = [0xaa; 16];
    net.read_config(0, &mut config);
    assert_eq!(config, [2, 0, 0, 0, 0, 1, 1, 0, 1, 0, 0xdc, 5, 0, 0, 0, 0]);
}

#[test]
fn what_is_no_tap_is_refused() {
    let file = tempfile::tempfile().unwrap();
    assert_ne!(Net::new(file.into(), MAC, 1500).unwrap_err().kind(), ErrorKind::WouldBlock);
}

#[test]
fn a_restored_interface_goes_on_where_the_saved_one_stopped() {
    let (mut first, wire) = net();
    let memory = memory();
    let [mut rx, mut tx, control] = [0, 1, 2].map(|index| Driver::new(&memory, index));
    let line: Arc<Line> = Line::new();
    let (active, kicks) = activation(&memory, vec![rx.queue(), tx.queue(), control.queue()], &line, MERGE);
    let kick = |kicks: &[EventFd], queue: usize| kicks[queue].write(1).unwrap();
    first.activate(active).unwrap();
    for index in 0..12 {
        rx.put(&[(BUFFER + 0x1000 * index, 1000, WRITE)]);
    }
    kick(&kicks, 0);
    wire.send(60);
    assert_eq!(rx.wait_used(&line, 1), [(0, 60)]);
    tx.put(&[(BUFFER, 60, 0)]);
    kick(&kicks, 1);
    tx.wait_used(&line, 1);
    assert_eq!(wire.receive().unwrap().len(), 60);

    let queues = first.pause().unwrap();
    let state = first.save();
    wire.send(1500);
    tx.put(&[(BUFFER, 70, 0)]);
    let tap = Arc::into_inner(first.into_tap()).unwrap();
    let mut second = Net::over(tap, MAC, 1500, Arc::new(Settings::default()));
    second.restore(&state).unwrap();
    let (active, _kicks) = activation(&memory, queues, &line, MERGE);
    second.activate(active).unwrap();
    assert_eq!(rx.wait_used(&line, 2), [(1, 1000), (2, 500)]);
    tx.wait_used(&line, 1);
    assert_eq!(wire.receive().unwrap().len(), 70);
    let mut larger = state;
    larger["mtu"] = 9000.into();
    let (mut other, _wire) = net();
    assert!(other.restore(&larger).is_err());
}

impl Net {
    fn into_tap(self) -> Arc<OwnedFd> {
        self.tap
    }
}

proptest! {
    #[test]
    fn every_descriptor_table_is_survived(
        table in entries(),
        heads in proptest::collection::vec(heads(), 1..16),
        frames in proptest::collection::vec(0usize..4000, 0..8),
        merge: bool,
    ) {
        let mut bench = bench(if merge { MERGE } else { PLAIN } | control::CONTROL);
        for (index, entry) in (0u16..).zip(&table) {
            bench.rx.descriptor(bench.rx.table(), index, *entry);
            bench.tx.descriptor(bench.tx.table(), index, *entry);
            bench.control.descriptor(bench.control.table(), index, *entry);
        }
        for head in &heads {
            bench.rx.offer(*head);
            bench.tx.offer(*head);
            bench.control.offer(*head);
        }
        frames.iter().filter(|length| **length > 0).for_each(|length| bench.wire.send(*length));
        for _ in 0..64 {
            bench.worker.receive();
            bench.worker.transmit();
            bench.worker.control();
        }
        prop_assert!(!bench.worker.tx_ready && !bench.worker.control_ready);
        prop_assert!(!bench.worker.tap_ready || bench.worker.starved);
        if table.iter().all(|entry| entry.0 >= 0x1_0000) {
            let valid = heads.iter().filter(|head| **head < Driver::SIZE).count();
            prop_assert_eq!(bench.tx.take_used().len(), valid);
            prop_assert_eq!(bench.control.take_used().len(), valid);
        }
    }
}
