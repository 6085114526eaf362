//! The region as a driver sees it.

use proptest::prelude::*;

use super::Pmem;
use crate::virtio::VirtioDevice;
use crate::virtio::testing::{Driver, Line, NEXT, WRITE, activation, entries, heads, memory};

const REQUEST: u64 = 0x2_0000;
const ANSWER: u64 = 0x2_1000;

fn region() -> (Pmem, Driver) {
    let memory = memory();
    let mut pmem = Pmem::new(0x1_0000_0000, 0x20_0000);
    let driver = Driver::new(&memory, 0);
    let (activation, _kicks) = activation(&memory, vec![driver.queue()], &Line::new(), pmem.features());
    pmem.activate(activation).unwrap();
    (pmem, driver)
}

#[test]
fn the_configuration_has_the_place_of_the_region() {
    let (pmem, _driver) = region();
    let mut config = [0; 20];
    pmem.read_config(0, &mut config);
    assert_eq!(config[..8], 0x1_0000_0000u64.to_le_bytes());
    assert_eq!(config[8..16], 0x20_0000u64.to_le_bytes());
    assert_eq!(config[16..], [0; 4]);
}

#[test]
fn a_flush_is_done_and_other_requests_fail() {
    let (mut pmem, mut driver) = region();
    for (kind, result) in [(0u32, 0u32), (1, 1)] {
        driver.write(REQUEST, &kind.to_le_bytes());
        driver.write(ANSWER, &[0xff; 4]);
        let head = driver.put(&[(REQUEST, 4, 0), (ANSWER, 4, WRITE)]);
        pmem.notify(0);
        assert_eq!(driver.take_used(), [(head, 4)]);
        assert_eq!(u32::from_le_bytes(driver.read(ANSWER)), result);
    }
}

#[test]
fn chains_that_make_no_sense_are_given_back_and_counted() {
    let (mut pmem, mut driver) = region();
    driver.put(&[(REQUEST, 3, 0), (ANSWER, 4, WRITE)]);
    driver.put(&[(REQUEST, 4, 0), (ANSWER, 3, WRITE)]);
    driver.put(&[(REQUEST, 4, WRITE), (ANSWER, 4, 0)]);
    driver.put(&[(1 << 50, 4, 0), (ANSWER, 4, WRITE)]);
    driver.descriptor(driver.table(), 12, (REQUEST, 4, NEXT, 12));
    driver.offer(12);
    pmem.notify(0);
    let used = driver.take_used();
    assert_eq!(used.len(), 5);
    assert!(used.iter().all(|(_, written)| *written == 0));
    assert!(pmem.counts().faults >= 5);
    driver.jump(500);
    pmem.notify(0);
    assert!(driver.take_used().is_empty());
}

#[test]
fn a_restored_region_goes_on_where_the_saved_one_stopped() {
    let (mut pmem, mut driver) = region();
    driver.put(&[(REQUEST, 4, 0), (ANSWER, 4, WRITE)]);
    pmem.notify(0);
    let queues = pmem.pause().unwrap();
    let state = pmem.save();
    pmem.notify(0);
    let head = driver.put(&[(REQUEST, 4, 0), (ANSWER, 4, WRITE)]);

    let mut other = Pmem::new(0x1_0000_0000, 0x20_0000);
    other.restore(&state).unwrap();
    let (activation, _kicks) = activation(&driver.memory, queues, &Line::new(), other.features());
    other.activate(activation).unwrap();
    assert_eq!(driver.take_used(), [(0, 4), (head, 4)]);
    assert!(Pmem::new(0, 0x20_0000).restore(&state).is_err());
    assert!(other.restore(&serde_json::json!({ "guest_base": 0 })).is_err());
}

#[test]
fn after_a_reset_nothing_is_touched() {
    let (mut pmem, mut driver) = region();
    pmem.reset();
    driver.put(&[(REQUEST, 4, 0), (ANSWER, 4, WRITE)]);
    pmem.notify(0);
    assert!(driver.take_used().is_empty());
    assert!(pmem.pause().is_none());
}

proptest! {
    #[test]
    fn every_descriptor_table_is_survived(
        table in entries(),
        heads in proptest::collection::vec(heads(), 1..16),
    ) {
        let (mut pmem, mut driver) = region();
        for (index, entry) in (0u16..).zip(&table) {
            driver.descriptor(driver.table(), index, *entry);
        }
        for head in &heads {
            driver.offer(*head);
        }
        pmem.notify(0);
        if table.iter().all(|entry| entry.0 >= 0x1_0000) {
            let valid = heads.iter().filter(|head| **head < Driver::SIZE).count();
            prop_assert_eq!(driver.take_used().len(), valid);
        }
    }
}
