//! A queue as a device has it.

use super::*;
use vm_memory::{GuestAddress, GuestRegionMmap};

use crate::virtio::testing::{Driver, IMAGE, WRITE, image, memory};

const BUFFER: u64 = 0x2_0000;

fn ring(driver: &Driver) -> (Ring, Faults) {
    let faults = Faults::default();
    (Ring::open("test", driver.queue(), &driver.memory, &faults).unwrap(), faults)
}

#[test]
fn chains_are_taken_once_and_given_back() {
    let mut driver = Driver::new(&memory(), 0);
    let (mut ring, faults) = ring(&driver);
    let mut chain = Chain::default();
    for round in 0..50 {
        let head = driver.put(&[(BUFFER, 16, WRITE), (BUFFER, 1, WRITE)]);
        let taken = ring.take(&mut chain).unwrap();
        assert_eq!(taken, Taken { head, fault: None });
        assert!(ring.take(&mut chain).is_none());
        ring.complete(taken, round);
        assert_eq!(driver.take_used(), [(head, round)]);
    }
    assert_eq!(faults.total(), 0);
}

#[test]
fn what_is_put_back_is_taken_again() {
    let mut driver = Driver::new(&memory(), 0);
    let (mut ring, _) = ring(&driver);
    let mut chain = Chain::default();
    let first = driver.put(&[(BUFFER, 16, WRITE)]);
    driver.put(&[(BUFFER, 16, WRITE)]);
    while ring.take(&mut chain).is_some() {}
    ring.put_back(2);
    assert_eq!(ring.take(&mut chain).unwrap().head, first);
    assert_eq!(ring.into_queue().next_avail(), 1);
}

#[test]
fn a_ring_without_chains_keeps_no_image_open() {
    let mut driver = Driver::new(&memory(), 0);
    let (mut ring, _) = ring(&driver);
    image(&driver.memory);
    let mut chain = Chain::default();
    driver.put(&[(IMAGE, 16, 0)]);
    assert_eq!(ring.take(&mut chain).unwrap().fault, None);
    let held = Arc::downgrade(&driver.memory.readable());
    driver.memory.remove_image(IMAGE);
    assert!(held.upgrade().is_some(), "the chain is being worked on");
    assert!(ring.take(&mut chain).is_none());
    assert!(held.upgrade().is_none());
}

#[test]
fn a_ring_in_memory_that_was_given_back_stops_and_is_counted() {
    let memory = memory();
    let room = Arc::new(GuestRegionMmap::from_range(GuestAddress(IMAGE), 0x1000, None).unwrap());
    memory.set_plugged(&room, &[(0, 0x1000)]).unwrap();
    let mut driver = Driver::at(&memory, IMAGE);
    let (mut ring, faults) = ring(&driver);
    driver.put(&[(BUFFER, 1, 0)]);
    memory.set_plugged(&room, &[]).unwrap();
    assert!(ring.take(&mut Chain::default()).is_none());
    assert_eq!(faults.total(), 1);
}

#[test]
fn a_head_beyond_the_table_is_counted_and_not_given_back() {
    let mut driver = Driver::new(&memory(), 0);
    let (mut ring, faults) = ring(&driver);
    driver.offer(Driver::SIZE);
    let taken = ring.take(&mut Chain::default()).unwrap();
    ring.complete(taken, 0);
    assert_eq!((driver.take_used().len(), faults.total()), (0, 1));
}

#[test]
fn an_index_that_jumps_breaks_the_ring_once() {
    let mut driver = Driver::new(&memory(), 0);
    let (mut ring, faults) = ring(&driver);
    driver.jump(Driver::SIZE + 1);
    assert!(ring.listen());
    for _ in 0..3 {
        assert!(ring.take(&mut Chain::default()).is_none());
    }
    assert!(!ring.listen());
    driver.jump(0);
    driver.put(&[(BUFFER, 1, 0)]);
    assert!(ring.take(&mut Chain::default()).is_none());
    assert_eq!(faults.total(), 1);
}

#[test]
fn listening_reports_what_came_meanwhile() {
    let mut driver = Driver::new(&memory(), 0);
    let (mut ring, _) = ring(&driver);
    ring.mute();
    assert!(!ring.listen());
    driver.put(&[(BUFFER, 1, 0)]);
    assert!(ring.listen());
}

#[test]
fn a_muted_ring_is_not_notified_of_what_comes() {
    let mut driver = Driver::new(&memory(), 0);
    let mut ring =
        Ring::open("test", driver.queue_with_events(), &driver.memory, &Faults::default()).unwrap();
    let mut chain = Chain::default();
    assert!(!ring.listen());
    driver.put(&[(BUFFER, 1, 0)]);
    assert!(driver.wants_kick());
    let _ = ring.take(&mut chain).unwrap();
    assert!(!ring.listen());
    ring.mute();
    for _ in 0..3 {
        driver.put(&[(BUFFER, 1, 0)]);
        assert!(!driver.wants_kick());
    }
    assert!(ring.listen());
    while ring.take(&mut chain).is_some() {}
    assert!(!ring.listen());
    driver.put(&[(BUFFER, 1, 0)]);
    assert!(driver.wants_kick());
}
