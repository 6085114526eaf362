//! The memory device as drivers see it, good ones and bad ones.

use std::sync::Arc;

use nix::sys::eventfd::{EfdFlags, EventFd};
use proptest::prelude::*;
use vm_memory::{Bytes as _, GuestAddress, GuestMemory as _, GuestRegionMmap, MemoryRegionAddress};

use super::{BLOCK_BYTES, Mem, MemHandle};
use crate::virtio::memory::RUNS_MAX;
use crate::virtio::testing::{Driver, Line, MEMORY, NEXT, WRITE, activation, entries, heads};
use crate::virtio::{GuestMemory, MemoryMap, VirtioDevice};

const BASE: u64 = 1 << 32;
const LENGTH: u64 = 8 * BLOCK_BYTES;
const REQUEST: u64 = 0x2_0000;
const ANSWER: u64 = 0x2_1000;

const PLUG: u16 = 0;
const UNPLUG: u16 = 1;
const UNPLUG_ALL: u16 = 2;
const STATE: u16 = 3;
const ACK: u16 = 0;
const NACK: u16 = 1;
const BUSY: u16 = 2;
const ERROR: u16 = 3;

struct Bench {
    mem: Mem,
    handle: MemHandle,
    driver: Driver,
    memory: GuestMemory,
    room: Arc<GuestRegionMmap>,
    settled: Arc<EventFd>,
}

impl Bench {
    fn new() -> Bench {
        Bench::with_blocks(LENGTH / BLOCK_BYTES)
    }

    fn with_blocks(blocks: u64) -> Bench {
        let region = |base, bytes| GuestRegionMmap::from_range(GuestAddress(base), bytes, None).unwrap();
        let memory = GuestMemory::new(vec![region(0, MEMORY)]).unwrap();
        let room = Arc::new(region(BASE, (blocks * BLOCK_BYTES) as usize));
        let settled = event();
        let mut mem = Mem::new(room.clone(), memory.clone(), settled.clone());
        let handle = mem.handle();
        let driver = Driver::new(&memory, 0);
        let (activation, _kicks) = activation(&memory, vec![driver.queue()], &Line::new(), mem.features());
        mem.activate(activation).unwrap();
        Bench { mem, handle, driver, memory, room, settled }
    }

    /// Type and state of the answer.
    fn ask(&mut self, kind: u16, address: u64, blocks: u16) -> (u16, u16) {
        let mut request = [0; 24];
        request[..2].copy_from_slice(&kind.to_le_bytes());
        request[8..16].copy_from_slice(&address.to_le_bytes());
        request[16..18].copy_from_slice(&blocks.to_le_bytes());
        self.driver.write(REQUEST, &request);
        self.driver.write(ANSWER, &[0xff; 10]);
        let head = self.driver.put(&[(REQUEST, 24, 0), (ANSWER, 10, WRITE)]);
        self.mem.notify(0);
        assert_eq!(self.driver.take_used(), [(head, 10)]);
        let answer: [u8; 10] = self.driver.read(ANSWER);
        (u16::from_le_bytes([answer[0], answer[1]]), u16::from_le_bytes([answer[8], answer[9]]))
    }

    fn config(&self, offset: u64) -> u64 {
        let mut bytes = [0; 8];
        self.mem.read_config(offset, &mut bytes);
        u64::from_le_bytes(bytes)
    }

    fn settled(&self) -> bool {
        self.settled.read().is_ok()
    }

    /// Whether devices may write to, and read, all bytes of a block.
    fn reached(&self, block: u64) -> bool {
        let all = |map: &MemoryMap| map.check_range(GuestAddress(at(block)), BLOCK_BYTES as usize);
        let (writable, readable) = (all(&self.memory.writable()), all(&self.memory.readable()));
        assert_eq!(writable, readable);
        writable
    }

    /// The host's bytes near the beginning of a block, plugged or not.
    fn content(&self, block: u64) -> u64 {
        self.room.read_obj(MemoryRegionAddress(block * BLOCK_BYTES + 64)).unwrap()
    }
}

fn event() -> Arc<EventFd> {
    Arc::new(EventFd::from_flags(EfdFlags::EFD_NONBLOCK).unwrap())
}

fn at(block: u64) -> u64 {
    BASE + block * BLOCK_BYTES
}

#[test]
fn blocks_are_plugged_up_to_what_is_requested_and_the_vm_is_notified_once() {
    let mut bench = Bench::new();
    assert_eq!([0, 16, 24].map(|offset| bench.config(offset)), [BLOCK_BYTES, BASE, LENGTH]);
    assert_eq!(bench.ask(PLUG, at(0), 1).0, ERROR, "nothing is usable yet");
    bench.handle.request(3 * BLOCK_BYTES, 6 * BLOCK_BYTES);
    assert_eq!([32, 40, 48].map(|o| bench.config(o)), [6 * BLOCK_BYTES, 0, 3 * BLOCK_BYTES]);
    assert_eq!(bench.ask(PLUG, at(1), 2).0, ACK);
    assert!(!bench.settled());
    assert_eq!(bench.ask(PLUG, at(4), 2).0, NACK);
    assert_eq!(bench.ask(PLUG, at(5), 1).0, ACK);
    assert!(bench.settled());
    assert_eq!((bench.handle.plugged_bytes(), bench.config(40)), (3 * BLOCK_BYTES, 3 * BLOCK_BYTES));
    // Going back and forth again wakes no thread.
    assert_eq!((bench.ask(UNPLUG, at(5), 1).0, bench.ask(PLUG, at(0), 1).0), (ACK, ACK));
    assert!(!bench.settled());
    bench.handle.request(3 * BLOCK_BYTES, 6 * BLOCK_BYTES);
    assert!(bench.settled(), "it is so already");
}

#[test]
fn the_state_of_ranges_is_answered() {
    let mut bench = Bench::new();
    bench.handle.request(2 * BLOCK_BYTES, LENGTH);
    bench.ask(PLUG, at(2), 2);
    assert_eq!(bench.ask(STATE, at(2), 2), (ACK, 0));
    assert_eq!(bench.ask(STATE, at(4), 4), (ACK, 1));
    assert_eq!(bench.ask(STATE, at(0), 8), (ACK, 2));
    assert_eq!(bench.ask(STATE, at(0), 9).0, ERROR);
}

#[test]
fn unplugged_memory_goes_back_to_the_host() {
    let mut bench = Bench::new();
    bench.handle.request(4 * BLOCK_BYTES, LENGTH);
    bench.ask(PLUG, at(0), 4);
    for block in 0..4 {
        bench.memory.writable().write_obj(7u64, GuestAddress(at(block) + 64)).unwrap();
    }
    assert_eq!(bench.ask(UNPLUG, at(1), 1).0, ACK);
    assert_eq!([0, 1, 2].map(|block| bench.content(block)), [7, 0, 7]);
    assert_eq!(bench.ask(UNPLUG_ALL, 0, 0).0, ACK);
    assert_eq!([0, 1, 2].map(|block| bench.content(block)), [0, 0, 0]);
    assert_eq!(bench.handle.plugged_bytes(), 0);
    bench.handle.request(0, LENGTH);
    assert!(bench.settled());
}

#[test]
fn devices_reach_blocks_while_they_are_plugged_and_no_others() {
    let mut bench = Bench::new();
    bench.handle.request(4 * BLOCK_BYTES, 6 * BLOCK_BYTES);
    let reached = |bench: &Bench| (0..8).filter(|block| bench.reached(*block)).collect::<Vec<_>>();
    assert!(reached(&bench).is_empty(), "usable is not plugged");
    bench.ask(PLUG, at(1), 3);
    assert_eq!(reached(&bench), [1, 2, 3]);
    bench.ask(UNPLUG, at(2), 1);
    assert_eq!(reached(&bench), [1, 3]);
    bench.ask(PLUG, at(2), 1);
    let across = bench.memory.writable().check_range(GuestAddress(at(1)), 3 * BLOCK_BYTES as usize);
    assert!(across, "neighbours are one part");
    bench.ask(UNPLUG_ALL, 0, 0);
    assert!(reached(&bench).is_empty());
}

#[test]
fn a_driver_that_tears_memory_to_pieces_is_put_off() {
    let pieces = RUNS_MAX as u64;
    let mut bench = Bench::with_blocks(2 * pieces + 3);
    let plugged: Vec<_> = (0..pieces).map(|piece| (2 * piece, 1)).collect();
    let length = bench.config(24);
    let queues = bench.mem.pause().unwrap();
    let state = serde_json::json!({
        "base": BASE, "length": length, "usable": length, "requested": length, "plugged": plugged
    });
    bench.mem.restore(&state).unwrap();
    let (activation, _kicks) = activation(&bench.memory, queues, &Line::new(), bench.mem.features());
    bench.mem.activate(activation).unwrap();
    assert_eq!(bench.ask(PLUG, at(2 * pieces), 1).0, BUSY, "one piece too many");
    assert_eq!(bench.handle.plugged_bytes(), pieces * BLOCK_BYTES);
    assert!(!bench.reached(2 * pieces));
    assert_eq!(bench.ask(PLUG, at(1), 1).0, ACK, "two pieces become one");
    assert_eq!(bench.ask(PLUG, at(2 * pieces), 1).0, ACK);
    assert_eq!(bench.ask(UNPLUG, at(1), 1).0, BUSY);
    assert!(bench.reached(1));
    assert_eq!(bench.ask(UNPLUG_ALL, 0, 0).0, ACK);
}

#[test]
fn requests_that_make_no_sense_change_nothing() {
    let mut bench = Bench::new();
    bench.handle.request(LENGTH, LENGTH);
    bench.ask(PLUG, at(0), 2);
    for (kind, address, blocks) in [
        (PLUG, at(1), 1),
        (PLUG, at(1), 2),
        (PLUG, at(7), 2),
        (PLUG, at(8), 1),
        (PLUG, at(3) + 4096, 1),
        (PLUG, at(3), 0),
        (PLUG, BASE - BLOCK_BYTES, 1),
        (PLUG, u64::MAX - BLOCK_BYTES + 1, 2),
        (PLUG, 0, u16::MAX),
        (UNPLUG, at(2), 1),
        (UNPLUG, at(1), 2),
        (UNPLUG, 0, 1),
        (UNPLUG, u64::MAX, u16::MAX),
        (STATE, at(9), 1),
        (4, at(3), 1),
        (u16::MAX, at(3), 1),
    ] {
        assert_eq!(bench.ask(kind, address, blocks).0, ERROR, "{kind} {address:#x} {blocks}");
        assert_eq!(bench.handle.plugged_bytes(), 2 * BLOCK_BYTES);
    }
}

#[test]
fn a_request_for_less_does_not_take_by_force() {
    let mut bench = Bench::new();
    bench.handle.request(4 * BLOCK_BYTES, LENGTH);
    bench.ask(PLUG, at(0), 4);
    assert!(bench.settled());
    bench.handle.request(BLOCK_BYTES, LENGTH);
    assert_eq!((bench.handle.plugged_bytes(), bench.settled()), (4 * BLOCK_BYTES, false));
    assert_eq!(bench.ask(PLUG, at(4), 1).0, NACK);
    bench.ask(UNPLUG, at(1), 3);
    assert!(bench.settled());
    // Never more than the region.
    bench.handle.request(u64::MAX, u64::MAX);
    assert_eq!((bench.config(32), bench.config(48)), (LENGTH, LENGTH));
}

#[test]
fn growth_is_done_with_more_than_was_requested_and_less_only_with_exactly_that() {
    let mut bench = Bench::new();
    bench.handle.request(4 * BLOCK_BYTES, LENGTH);
    bench.ask(PLUG, at(0), 4);
    assert!(bench.settled());
    bench.handle.request(BLOCK_BYTES, LENGTH);
    assert_eq!(bench.ask(UNPLUG, at(3), 1).0, ACK);
    assert!(!bench.settled(), "the driver could not give back the rest");
    bench.handle.request(2 * BLOCK_BYTES, LENGTH);
    assert!(bench.settled(), "it has more than it needs");
    bench.handle.request(2 * BLOCK_BYTES, LENGTH);
    assert!(bench.settled(), "the same request again");
    bench.handle.request(BLOCK_BYTES, LENGTH);
    bench.handle.request(BLOCK_BYTES, LENGTH);
    assert!(!bench.settled(), "the same request again");
    bench.ask(UNPLUG, at(1), 2);
    assert!(bench.settled());
}

#[test]
fn chains_that_make_no_sense_are_given_back_and_counted() {
    let mut bench = Bench::new();
    let driver = &mut bench.driver;
    driver.put(&[(REQUEST, 23, 0), (ANSWER, 10, WRITE)]);
    driver.put(&[(REQUEST, 24, 0), (ANSWER, 9, WRITE)]);
    driver.put(&[(REQUEST, 24, WRITE), (ANSWER, 10, 0)]);
    driver.put(&[(1 << 50, 24, 0), (ANSWER, 10, WRITE)]);
    driver.descriptor(driver.table(), 12, (REQUEST, 24, NEXT, 12));
    driver.offer(12);
    bench.mem.notify(0);
    let used = bench.driver.take_used();
    assert_eq!(used.len(), 5);
    assert!(used.iter().all(|(_, written)| *written == 0));
    assert!(bench.mem.counts().faults >= 5);
    bench.driver.jump(500);
    bench.mem.notify(0);
    assert!(bench.driver.take_used().is_empty());
}

#[test]
fn a_restored_device_knows_what_was_plugged() {
    let mut bench = Bench::new();
    bench.handle.request(3 * BLOCK_BYTES, LENGTH);
    bench.ask(PLUG, at(1), 1);
    bench.ask(PLUG, at(4), 2);
    let queues = bench.mem.pause().unwrap();
    let state = bench.mem.save();
    let mut other = Mem::new(bench.room.clone(), bench.memory.clone(), event());
    other.restore(&state).unwrap();
    let (activation, _kicks) = activation(&bench.memory, queues, &Line::new(), other.features());
    other.activate(activation).unwrap();
    assert_eq!(other.save(), state);
    bench.mem = other;
    assert_eq!(bench.ask(STATE, at(4), 2), (ACK, 0));
    assert_eq!(bench.ask(UNPLUG, at(1), 1).0, ACK);
    let mut refused = |base, length, plugged: &[(usize, usize)], requested| {
        let state = serde_json::json!({
            "base": base, "length": length, "usable": length, "requested": requested, "plugged": plugged
        });
        bench.mem.restore(&state).is_err()
    };
    assert!(refused(BASE + 1, LENGTH, &[], 0));
    assert!(refused(BASE, LENGTH, &[(7, 2)], 0));
    assert!(refused(BASE, LENGTH, &[(1, 2), (2, 1)], 0));
    assert!(refused(BASE, LENGTH, &[], LENGTH + 1));
    bench.mem.reset();
    assert!(bench.mem.pause().is_none());
}

proptest! {
    #[test]
    fn no_guest_gets_more_than_is_requested(
        requests in proptest::collection::vec((0u16..5, 0u64..12, 0u16..10, any::<bool>()), 1..60),
        requested in 0u64..12,
    ) {
        let mut bench = Bench::new();
        bench.handle.request(requested * BLOCK_BYTES, LENGTH);
        for (kind, block, blocks, odd) in requests {
            bench.ask(kind, at(block) - if odd { 8 * BLOCK_BYTES + 1 } else { 0 }, blocks);
            prop_assert!(bench.handle.plugged_bytes() <= bench.config(48));
        }
    }

    #[test]
    fn every_descriptor_table_is_survived(
        table in entries(),
        heads in proptest::collection::vec(heads(), 1..16),
    ) {
        let mut bench = Bench::new();
        bench.handle.request(LENGTH, LENGTH);
        for (index, entry) in (0u16..).zip(&table) {
            bench.driver.descriptor(bench.driver.table(), index, *entry);
        }
        for head in &heads {
            bench.driver.offer(*head);
        }
        bench.mem.notify(0);
        prop_assert!(bench.handle.plugged_bytes() <= LENGTH);
    }
}
