//! The disk as a driver sees it, on a file of 64 KiB. Each sector is filled with its number.

use std::fs::File;
use std::io::Write as _;
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::sync::Arc;

use proptest::prelude::*;
use virtio_queue::QueueT as _;
use vmm_sys_util::eventfd::EventFd;

use super::worker::{BlkThread, Left};
use super::{Blk, FullDisks};
use crate::virtio::testing::{
    Driver, IMAGE, INDIRECT, Line, NEXT, WRITE, activation, entries, heads, image, image_content, memory,
};
use crate::virtio::{GuestMemory, VirtioDevice};

const SECTORS: u64 = 128;
const HEADER: u64 = 0x2_0000;
const DATA: u64 = 0x3_0000;
const STATUS: u64 = 0x2_1000;

fn file() -> File {
    let mut file = tempfile::tempfile().unwrap();
    for sector in 0..SECTORS {
        file.write_all(&[sector as u8; 512]).unwrap();
    }
    file
}

fn new_blk(file: File, read_only: bool) -> Blk {
    Blk::new(file, read_only, &FullDisks::new().unwrap()).unwrap()
}

struct Disk {
    blk: Blk,
    file: File,
    driver: Driver,
    line: Arc<Line>,
    kicks: Vec<EventFd>,
}

fn disk(read_only: bool) -> Disk {
    let file = file();
    let memory = memory();
    let mut blk = new_blk(file.try_clone().unwrap(), read_only);
    let driver = Driver::new(&memory, 0);
    let line = Line::new();
    let (activation, kicks) = activation(&memory, vec![driver.queue()], &line, blk.features());
    blk.activate(activation).unwrap();
    Disk { blk, file, driver, line, kicks }
}

impl Disk {
    fn header(&self, kind: u32, sector: u64) {
        self.driver.write(HEADER, &u64::from(kind).to_le_bytes());
        self.driver.write(HEADER + 8, &sector.to_le_bytes());
        self.driver.write(STATUS, &[0xff]);
    }

    /// Sends a request and returns its status byte and the bytes written.
    fn send(&mut self, kind: u32, sector: u64, data: &[(u64, u32, u16)]) -> (u8, u32) {
        self.header(kind, sector);
        let mut buffers = vec![(HEADER, 16, 0)];
        buffers.extend_from_slice(data);
        buffers.push((STATUS, 1, WRITE));
        self.raw(&buffers)
    }

    fn raw(&mut self, buffers: &[(u64, u32, u16)]) -> (u8, u32) {
        let head = self.driver.put(buffers);
        self.kicks[0].write(1).unwrap();
        let used = self.driver.wait_used(&self.line, 1);
        assert_eq!(used[0].0, head);
        (self.driver.read::<1>(STATUS)[0], used[0].1)
    }

    fn range(&self, sector: u64, sectors: u32, flags: u32) -> (u64, u32, u16) {
        self.driver.write(DATA, &sector.to_le_bytes());
        self.driver.write(DATA + 8, &sectors.to_le_bytes());
        self.driver.write(DATA + 12, &flags.to_le_bytes());
        (DATA, 16, 0)
    }
}

#[test]
fn sectors_are_read_into_scattered_buffers() {
    let mut disk = disk(false);
    assert_eq!(disk.send(0, 3, &[(DATA, 100, WRITE), (DATA + 0x1000, 924, WRITE)]), (0, 1025));
    assert_eq!(disk.driver.read::<100>(DATA), [3; 100]);
    assert_eq!(disk.driver.read::<412>(DATA + 0x1000), [3; 412]);
    assert_eq!(disk.driver.read::<512>(DATA + 0x1000 + 412), [4; 512]);
}

#[test]
fn sectors_are_written_and_flushed() {
    let mut disk = disk(false);
    disk.driver.write(DATA, &[0xee; 512]);
    assert_eq!(disk.send(1, 5, &[(DATA, 512, 0)]), (0, 1));
    assert_eq!(disk.send(4, 0, &[]), (0, 1));
    let mut sector = [0; 512];
    disk.file.read_exact_at(&mut sector, 5 * 512).unwrap();
    assert_eq!(sector, [0xee; 512]);
}

#[test]
fn a_header_in_pieces_is_still_a_header() {
    let mut disk = disk(false);
    disk.header(0, 9);
    let buffers = [(HEADER, 5, 0), (HEADER + 5, 0, 0), (HEADER + 5, 11, 0), (DATA, 513, WRITE)];
    disk.driver.put(&buffers);
    disk.kicks[0].write(1).unwrap();
    assert_eq!(disk.driver.wait_used(&disk.line, 1)[0].1, 513);
    assert_eq!((disk.driver.read::<512>(DATA), disk.driver.read::<1>(DATA + 512)), ([9; 512], [0]));
}

#[test]
fn requests_beyond_the_capacity_are_io_errors() {
    let mut disk = disk(false);
    for (sector, length) in [(SECTORS, 512), (SECTORS - 1, 1024), (u64::MAX, 512), (1 << 60, 512), (0, 100)] {
        assert_eq!(disk.send(0, sector, &[(DATA, length, WRITE)]).0, 1, "{sector} {length}");
        assert_eq!(disk.send(1, sector, &[(DATA, length, 0)]).0, 1, "{sector} {length}");
    }
    assert_eq!(disk.file.metadata().unwrap().len(), SECTORS * 512);
}

#[test]
fn a_block_device_that_has_grown_has_its_new_sectors_and_one_that_shrank_keeps_its_size() {
    let (file, memory) = (file(), memory());
    let blk = Blk::over(file.try_clone().unwrap(), false, false, &FullDisks::new().unwrap()).unwrap();
    let mut driver = Driver::new(&memory, 0);
    let line = Line::new();
    let (activation, _kicks) = activation(&memory, vec![driver.queue()], &line, blk.features());
    let worker = blk.back_end(activation).unwrap();
    let mut read_last = || {
        driver.write(HEADER, &[0; 8]);
        driver.write(HEADER + 8, &(2 * SECTORS - 1).to_le_bytes());
        driver.put(&[(HEADER, 16, 0), (DATA, 512, WRITE), (STATUS, 1, WRITE)]);
        assert_eq!(worker.batch(&mut BlkThread::new(true), |_| {}), Left::Nothing);
        driver.take_used();
        driver.read::<1>(STATUS)[0]
    };
    let capacity = |blk: &Blk| {
        let mut bytes = [0; 8];
        blk.read_config(0, &mut bytes);
        u64::from_le_bytes(bytes)
    };
    file.set_len(2 * SECTORS * 512).unwrap();
    worker.look_at_size();
    assert_eq!((capacity(&blk), read_last()), (SECTORS, 1), "it is not time to look yet");
    worker.queue().size.hurry();
    worker.look_at_size();
    assert_eq!((capacity(&blk), read_last(), line.config_changes()), (2 * SECTORS, 0, 1));
    file.set_len(SECTORS * 512).unwrap();
    worker.queue().size.hurry();
    worker.look_at_size();
    assert_eq!((capacity(&blk), line.config_changes()), (2 * SECTORS, 1));
}

#[test]
fn a_read_only_disk_is_not_written() {
    let mut disk = disk(true);
    assert_eq!(disk.blk.features() & (1 << 5 | 1 << 13 | 1 << 14), 1 << 5);
    assert_eq!(disk.send(1, 0, &[(DATA, 512, 0)]).0, 1);
    let range = disk.range(1, 1, 0);
    assert_eq!(disk.send(11, 0, &[range]).0, 1);
    assert_eq!(disk.send(13, 0, &[range]).0, 1);
    let mut sector = [9; 512];
    disk.file.read_exact_at(&mut sector, 0).unwrap();
    assert_eq!(sector, [0; 512]);
}

#[test]
fn discarded_and_zeroed_sectors_read_as_zero() {
    let mut disk = disk(false);
    let blocks = disk.file.metadata().unwrap().blocks();
    let range = disk.range(8, 16, 0);
    assert_eq!(disk.send(11, 0, &[range]).0, 0);
    assert!(disk.file.metadata().unwrap().blocks() < blocks);
    for (sector, flags) in [(32, 0), (40, 1)] {
        let range = disk.range(sector, 8, flags);
        assert_eq!(disk.send(13, 0, &[range]).0, 0);
        let mut data = [9; 512];
        disk.file.read_exact_at(&mut data, sector * 512).unwrap();
        assert_eq!(data, [0; 512]);
    }
    assert_eq!(disk.file.metadata().unwrap().len(), SECTORS * 512);
}

#[test]
fn ranges_that_are_not_allowed_are_refused() {
    let mut disk = disk(false);
    for (range, status) in
        [((SECTORS, 1, 0), 1), ((0, u32::MAX, 0), 1), ((u64::MAX, 2, 0), 1), ((0, 1, 1), 2), ((0, 1, 8), 2)]
    {
        let range = disk.range(range.0, range.1, range.2);
        assert_eq!(disk.send(11, 0, &[range]).0, status, "{range:?}");
    }
    assert_eq!(disk.send(11, 0, &[]).0, 1);
    assert_eq!(disk.send(13, 0, &[(DATA, 17, 0)]).0, 1);
    assert_eq!(disk.send(13, 0, &[(DATA, 16 * 33, 0)]).0, 1);
}

#[test]
fn the_identity_fills_what_room_there_is() {
    let mut disk = disk(false);
    assert_eq!(disk.send(8, 0, &[(DATA, 20, WRITE)]), (0, 21));
    assert_eq!(&disk.driver.read::<9>(DATA), b"podvisor\0");
    assert_eq!(disk.send(8, 0, &[(DATA, 3, WRITE)]), (0, 4));
    assert_eq!(disk.send(0x99, 0, &[]).0, 2);
}

#[test]
fn chains_that_make_no_sense_get_a_status_if_they_have_room_for_one() {
    let mut disk = disk(false);
    disk.header(0, 0);
    // No header; data outside memory; a readable buffer after a writable one.
    assert_eq!(disk.raw(&[(STATUS, 1, WRITE)]).0, 1);
    assert_eq!(disk.send(0, 0, &[(u64::MAX - 5, 512, WRITE)]).0, 1);
    assert_eq!(disk.send(0, 0, &[(DATA, 512, WRITE), (DATA, 16, 0)]).0, 1);
    let faults = disk.blk.counts().faults;
    // No status byte, none in memory: given back untouched, and counted.
    assert_eq!(disk.raw(&[(HEADER, 16, 0)]).1, 0);
    assert_eq!(disk.raw(&[(HEADER, 16, 0), (1 << 40, 1, WRITE)]).1, 0);
    assert!(disk.blk.counts().faults >= faults + 2);
    assert_eq!(disk.send(0, 0, &[(DATA, 512, WRITE)]).0, 0);
}

#[test]
fn loops_and_nested_tables_are_dropped_and_the_disk_goes_on() {
    let mut disk = disk(false);
    let table = disk.driver.table();
    disk.driver.descriptor(table, 15, (STATUS, 1, NEXT | WRITE, 15));
    disk.driver.offer(15);
    disk.driver.descriptor(DATA, 0, (DATA, 16, INDIRECT, 0));
    disk.driver.descriptor(table, 14, (DATA, 16, INDIRECT, 0));
    disk.driver.offer(14);
    disk.driver.offer(999);
    assert_eq!(disk.send_and_wait_all(3), [(15, 0), (14, 0), (0, 513)]);
}

impl Disk {
    fn send_and_wait_all(&mut self, count: usize) -> Vec<(u16, u32)> {
        self.header(0, 1);
        self.driver.put(&[(HEADER, 16, 0), (DATA, 512, WRITE), (STATUS, 1, WRITE)]);
        self.kicks[0].write(1).unwrap();
        self.driver.wait_used(&self.line, count)
    }
}

#[test]
fn an_indirect_table_is_followed() {
    let mut disk = disk(false);
    disk.header(0, 7);
    let indirect = 0x4_0000;
    disk.driver.descriptor(indirect, 0, (HEADER, 16, NEXT, 1));
    disk.driver.descriptor(indirect, 1, (DATA, 512, NEXT | WRITE, 2));
    disk.driver.descriptor(indirect, 2, (STATUS, 1, WRITE, 0));
    assert_eq!(disk.raw(&[(indirect, 48, INDIRECT)]), (0, 513));
    assert_eq!(disk.driver.read::<512>(DATA), [7; 512]);
}

#[test]
fn no_notification_is_lost_with_event_indices() {
    let memory = memory();
    let mut blk = new_blk(file(), false);
    let mut driver = Driver::new(&memory, 0);
    let line = Line::new();
    let (activation, kicks) = activation(&memory, vec![driver.queue_with_events()], &line, blk.features());
    blk.activate(activation).unwrap();
    let mut kicked = 0;
    for round in 0..2000u64 {
        driver.write(HEADER, &[0; 8]);
        driver.write(HEADER + 8, &(round % SECTORS).to_le_bytes());
        for _ in 0..=round % 3 {
            driver.put(&[(HEADER, 16, 0), (DATA, 513, WRITE)]);
            if driver.wants_kick() {
                kicks[0].write(1).unwrap();
                kicked += 1;
            }
        }
        let count = round as usize % 3 + 1;
        assert_eq!(driver.wait_used(&line, count).len(), count);
        assert_eq!(driver.read::<1>(DATA)[0], (round % SECTORS) as u8);
    }
    assert!(kicked > 0);
}

#[test]
fn an_available_index_that_jumps_stops_the_queue_until_reset() {
    let mut disk = disk(false);
    disk.driver.jump(1000);
    disk.kicks[0].write(1).unwrap();
    let queue = loop {
        if disk.blk.counts().faults > 0 {
            break disk.blk.pause().unwrap().remove(0);
        }
        std::thread::yield_now();
    };
    assert_eq!((queue.next_avail(), queue.next_used()), (0, 0));
}

#[test]
fn an_image_is_written_from_and_not_read_into() {
    let mut disk = disk(false);
    image(&disk.driver.memory);
    assert_eq!(disk.send(1, 4, &[(IMAGE + 512, 1024, 0)]).0, 0);
    let mut written = [0; 1024];
    disk.file.read_exact_at(&mut written, 4 * 512).unwrap();
    assert_eq!(written[..], image_content()[512..1536]);
    let faults = disk.blk.counts().faults;
    assert_eq!(disk.send(0, 4, &[(IMAGE, 512, WRITE)]).0, 1);
    assert_eq!(disk.blk.counts().faults, faults + 1);
    // Unplugged, it is outside of memory.
    disk.driver.memory.remove_image(IMAGE);
    assert_eq!(disk.send(1, 4, &[(IMAGE, 512, 0)]).0, 1);
}

#[test]
fn a_queue_left_disabled_is_refused() {
    let memory: GuestMemory = memory();
    let mut blk = new_blk(file(), false);
    let mut queue = Driver::new(&memory, 0).queue();
    queue.set_ready(false);
    let (activation, _kicks) = activation(&memory, vec![queue], &Line::new(), 0);
    assert!(blk.activate(activation).is_err());
    assert!(blk.pause().is_none());
}

#[test]
fn a_restored_disk_goes_on_where_the_saved_one_stopped() {
    let mut disk = disk(false);
    assert_eq!(disk.send(0, 1, &[(DATA, 512, WRITE)]).0, 0);
    let queues = disk.blk.pause().unwrap();
    let state = disk.blk.save();
    assert!(disk.blk.pause().is_none());
    // Offered while no thread looks, and without a notification.
    disk.header(0, 2);
    disk.driver.put(&[(HEADER, 16, 0), (DATA, 512, WRITE), (STATUS, 1, WRITE)]);

    let mut blk = new_blk(disk.file.try_clone().unwrap(), false);
    blk.restore(&state).unwrap();
    let (activation, _kicks) = activation(&disk.driver.memory, queues, &disk.line, blk.features());
    blk.activate(activation).unwrap();
    assert_eq!(disk.driver.wait_used(&disk.line, 1)[0].1, 513);
    assert_eq!(disk.driver.read::<512>(DATA), [2; 512]);
    assert!(new_blk(disk.file, true).restore(&state).is_err());
}

#[test]
fn the_configuration_has_capacity_and_limits() {
    let blk = new_blk(file(), false);
    let mut config = [0xaa; 64];
    blk.read_config(0, &mut config);
    assert_eq!(config[..8], SECTORS.to_le_bytes());
    assert_eq!((config[12], config[21], config[56], config[60]), (254, 2, 1, 0));
    blk.read_config(u64::MAX, &mut config);
    assert_eq!(config, [0; 64]);
}

proptest! {
    #[test]
    fn no_descriptor_table_harms_the_disk(
        table in entries(),
        heads in proptest::collection::vec(heads(), 1..16),
        kind in 0u8..16,
    ) {
        let memory = memory();
        let mut driver = Driver::new(&memory, 0);
        let file = file();
        let blk = new_blk(file.try_clone().unwrap(), false);
        let (activation, _kicks) = activation(&memory, vec![driver.queue()], &Line::new(), blk.features());
        let worker = blk.back_end(activation).unwrap();
        let mut thread = BlkThread::new(true);
        for (index, entry) in (0u16..).zip(&table) {
            if memory_holds(entry.0) {
                driver.write(entry.0, &[kind, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0]);
            }
            driver.descriptor(driver.table(), index, *entry);
        }
        for head in &heads {
            driver.offer(*head);
        }
        while worker.batch(&mut thread, |_| {}) == Left::Work {}
        let valid = heads.iter().filter(|head| **head < Driver::SIZE).count();
        prop_assert_eq!(file.metadata().unwrap().len(), SECTORS * 512);
        // A chain may write over the rings themselves. Then the used entries are arbitrary.
        if table.iter().all(|entry| entry.0 >= 0x1_0000) {
            prop_assert_eq!(driver.take_used().len(), valid);
        }
    }
}

fn memory_holds(address: u64) -> bool {
    (0x1_0000..0x3f_0000).contains(&address)
}
