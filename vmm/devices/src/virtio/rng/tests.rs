//! The entropy device as a driver sees it.

use proptest::prelude::*;

use super::Rng;
use crate::virtio::VirtioDevice;
use crate::virtio::testing::{Driver, Line, NEXT, WRITE, activation, entries, heads, memory};

const BUFFER: u64 = 0x2_0000;

fn source() -> (Rng, Driver) {
    let memory = memory();
    let mut rng = Rng::new();
    let driver = Driver::new(&memory, 0);
    let (activation, _kicks) = activation(&memory, vec![driver.queue()], &Line::new(), rng.features());
    rng.activate(activation).unwrap();
    (rng, driver)
}

#[test]
fn buffers_are_filled_and_nothing_beside_them() {
    let (mut rng, mut driver) = source();
    driver.put(&[(BUFFER, 32, WRITE), (BUFFER + 64, 32, WRITE)]);
    rng.notify(0);
    assert_eq!(driver.take_used(), [(0, 64)]);
    assert_ne!(driver.read::<32>(BUFFER), [0; 32]);
    assert_eq!(driver.read::<32>(BUFFER + 32), [0; 32]);
    assert_ne!(driver.read::<32>(BUFFER + 64), driver.read::<32>(BUFFER));
}

#[test]
fn a_chain_gets_no_more_than_the_limit() {
    let (mut rng, mut driver) = source();
    driver.put(&[(BUFFER, 40_000, WRITE), (BUFFER + 0x1_0000, 0x10_0000, WRITE)]);
    rng.notify(0);
    assert_eq!(driver.take_used(), [(0, 65_536)]);
    assert_eq!(driver.read::<16>(BUFFER + 0x1_0000 + 65_536 - 40_000), [0; 16]);
}

#[test]
fn chains_that_make_no_sense_are_given_back_and_counted() {
    let (mut rng, mut driver) = source();
    driver.put(&[(BUFFER, 32, 0)]);
    driver.put(&[(BUFFER, 0, WRITE)]);
    driver.put(&[(BUFFER, 32, WRITE), (u64::MAX, 32, WRITE)]);
    driver.descriptor(driver.table(), 9, (BUFFER, 32, NEXT | WRITE, 9));
    driver.offer(9);
    driver.offer(77);
    rng.notify(0);
    let used = driver.take_used();
    assert_eq!(used.len(), 4);
    assert!(used.iter().all(|(_, written)| *written == 0));
    assert!(rng.counts().faults >= 5);
    assert_eq!(driver.read::<32>(BUFFER), [0; 32]);
    driver.jump(999);
    rng.notify(0);
    assert!(driver.take_used().is_empty());
}

#[test]
fn a_restored_source_goes_on_where_the_saved_one_stopped() {
    let (mut rng, mut driver) = source();
    driver.put(&[(BUFFER, 32, WRITE)]);
    rng.notify(0);
    let queues = rng.pause().unwrap();
    let state = rng.save();
    driver.put(&[(BUFFER, 16, WRITE)]);

    let mut other = Rng::new();
    other.restore(&state).unwrap();
    let (activation, _kicks) = activation(&driver.memory, queues, &Line::new(), other.features());
    other.activate(activation).unwrap();
    assert_eq!(driver.take_used(), [(0, 32), (1, 16)]);
    assert!(other.restore(&serde_json::json!({ "seed": 1 })).is_err());
    other.reset();
    assert!(other.pause().is_none());
}

proptest! {
    #[test]
    fn every_descriptor_table_is_survived(
        table in entries(),
        heads in proptest::collection::vec(heads(), 1..16),
    ) {
        let (mut rng, mut driver) = source();
        for (index, entry) in (0u16..).zip(&table) {
            driver.descriptor(driver.table(), index, *entry);
        }
        for head in &heads {
            driver.offer(*head);
        }
        rng.notify(0);
        if table.iter().all(|entry| entry.0 >= 0x1_0000) {
            let valid = heads.iter().filter(|head| **head < Driver::SIZE).count();
            prop_assert_eq!(driver.take_used().len(), valid);
        }
    }
}
