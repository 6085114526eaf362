//! The balloon as a driver sees it.

use proptest::prelude::*;
use virtio_queue::{Queue, QueueState};
use vm_memory::GuestAddress;

use super::{Balloon, RUNS_MAX};
use crate::virtio::testing::{
    Driver, IMAGE, Line, MEMORY, NEXT, WRITE, activation, entries, heads, image, image_content, memory,
};
use crate::virtio::{GuestMemory, VirtioDevice};

const PAGE: u32 = 4096;
const PAGES: u64 = 0x10_0000;

/// An active balloon, and the driver's end of its queue of reports.
fn balloon(memory: &GuestMemory) -> (Balloon, Driver) {
    let mut balloon = Balloon::new();
    let driver = Driver::new(memory, 2);
    activate(&mut balloon, vec![idle(memory, 0), idle(memory, 1), driver.queue()], memory);
    (balloon, driver)
}

fn activate(balloon: &mut Balloon, queues: Vec<Queue>, memory: &GuestMemory) {
    let (activation, _kicks) = activation(memory, queues, &Line::new(), balloon.features());
    balloon.activate(activation).unwrap();
}

fn idle(memory: &GuestMemory, index: u64) -> Queue {
    Driver::new(memory, index).queue()
}

/// Returns the number of the `pages` from [`PAGES`] on with their written content.
fn kept(driver: &Driver, pages: u64) -> usize {
    (0..pages).filter(|page| driver.read::<1>(PAGES + page * u64::from(PAGE)) == [7]).count()
}

fn fill(driver: &Driver, pages: u64) {
    for page in 0..pages {
        driver.write(PAGES + page * u64::from(PAGE), &[7; PAGE as usize]);
    }
}

#[test]
fn pages_that_are_reported_are_given_back_and_no_others() {
    let (mut balloon, mut driver) = balloon(&memory());
    fill(&driver, 8);
    let head = driver.put(&[(PAGES, 2 * PAGE, WRITE), (PAGES + 4 * u64::from(PAGE), PAGE, WRITE)]);
    balloon.notify(2);
    assert_eq!(driver.take_used(), [(head, 0)]);
    assert_eq!(kept(&driver, 8), 5);
    assert_eq!(driver.read::<1>(PAGES), [0]);
    assert_eq!(balloon.counts().faults, 0);
    // The guest takes the pages into use again.
    fill(&driver, 8);
    assert_eq!(kept(&driver, 8), 8);
}

#[test]
fn the_driver_is_asked_for_no_memory_and_gets_no_answer_in_other_queues() {
    let memory = memory();
    let mut balloon = Balloon::new();
    let mut inflate = Driver::new(&memory, 0);
    activate(&mut balloon, vec![inflate.queue(), idle(&memory, 1), idle(&memory, 2)], &memory);
    let mut config = [0xff; 16];
    balloon.read_config(0, &mut config);
    balloon.write_config(4, &[1, 0, 0, 0]);
    assert_eq!(config, [0; 16]);
    inflate.put(&[(PAGES, 1024, 0)]);
    balloon.notify(0);
    assert!(inflate.take_used().is_empty());
}

#[test]
fn a_driver_without_reporting_needs_no_third_queue() {
    let memory = memory();
    let mut balloon = Balloon::new();
    let unset =
        Queue::try_from(QueueState { max_size: RUNS_MAX, size: RUNS_MAX, ..QueueState::default() }).unwrap();
    let queues = vec![idle(&memory, 0), idle(&memory, 1), unset];
    let (activation, _kicks) = activation(&memory, queues, &Line::new(), 1 << 32);
    balloon.activate(activation).unwrap();
    balloon.notify(2);
    assert_eq!(balloon.pause().map(|queues| queues.len()), Some(3));
}

#[test]
fn reports_that_make_no_sense_are_answered_and_counted_and_give_nothing_back() {
    let memory = memory();
    image(&memory);
    let (mut balloon, mut driver) = balloon(&memory);
    fill(&driver, 8);
    let whole = 8 * PAGE;
    // Not to be written; nothing; beyond memory, in part and in whole; an image; a loop.
    driver.put(&[(PAGES, whole, 0)]);
    driver.put(&[(PAGES, 0, WRITE)]);
    driver.put(&[(PAGES, whole, WRITE), (MEMORY as u64 - 1, 2, WRITE)]);
    driver.put(&[(PAGES, whole, WRITE), (u64::MAX - 1, whole, WRITE)]);
    driver.put(&[(PAGES, whole, WRITE), (IMAGE, PAGE, WRITE)]);
    driver.descriptor(driver.table(), 13, (PAGES, whole, NEXT | WRITE, 13));
    driver.offer(13);
    balloon.notify(2);
    let used = driver.take_used();
    assert_eq!(used.len(), 6);
    assert!(used.iter().all(|(_, written)| *written == 0));
    assert_eq!(balloon.counts().faults, 6);
    assert_eq!(kept(&driver, 8), 8);
    let mut content = [0; 16];
    vm_memory::Bytes::read_slice(&**memory.readable(), &mut content, GuestAddress(IMAGE)).unwrap();
    assert_eq!(content, image_content()[..16]);
}

#[test]
fn one_report_gives_back_no_more_runs_than_the_bound() {
    let (mut balloon, mut driver) = balloon(&memory());
    let pages = u64::from(RUNS_MAX) + 3;
    fill(&driver, pages);
    // One indirect table with more entries than the queue.
    for page in 0..RUNS_MAX + 3 {
        let address = PAGES + u64::from(page) * u64::from(PAGE);
        let more = if page < RUNS_MAX + 2 { NEXT } else { 0 };
        driver.descriptor(0x4_0000, page, (address, PAGE, WRITE | more, page + 1));
    }
    driver.put(&[(0x4_0000, 16 * (u32::from(RUNS_MAX) + 3), crate::virtio::testing::INDIRECT)]);
    balloon.notify(2);
    assert_eq!(driver.take_used(), [(0, 0)]);
    assert_eq!(kept(&driver, pages), 3);
}

#[test]
fn a_restored_balloon_goes_on_where_the_saved_one_stopped() {
    let memory = memory();
    let (mut balloon, mut driver) = balloon(&memory);
    fill(&driver, 2);
    driver.put(&[(PAGES, PAGE, WRITE)]);
    balloon.notify(2);
    let queues = balloon.pause().unwrap();
    let state = balloon.save();
    driver.put(&[(PAGES + u64::from(PAGE), PAGE, WRITE)]);

    let mut other = Balloon::new();
    other.restore(&state).unwrap();
    activate(&mut other, queues, &memory);
    assert_eq!(driver.take_used(), [(0, 0), (1, 0)]);
    assert_eq!(kept(&driver, 2), 0);
    assert!(other.restore(&serde_json::json!({ "pages": 1 })).is_err());
    other.reset();
    assert!(other.pause().is_none());
}

proptest! {
    #[test]
    fn every_descriptor_table_is_survived(
        table in entries(),
        heads in proptest::collection::vec(heads(), 1..16),
    ) {
        let (mut balloon, mut driver) = balloon(&memory());
        for (index, entry) in (0u16..).zip(&table) {
            driver.descriptor(driver.table(), index, *entry);
        }
        for head in &heads {
            driver.offer(*head);
        }
        balloon.notify(2);
        // A guest reporting the pages of its own rings loses them, and harms only itself.
        if table.iter().all(|entry| entry.0 >= 0x1_0000) {
            let valid = heads.iter().filter(|head| **head < Driver::SIZE).count();
            prop_assert_eq!(driver.take_used().len(), valid);
        }
    }
}
