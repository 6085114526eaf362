//! A disk with requests waiting for the node's own disk.

use std::fs::File;
use std::io::Write as _;
use std::os::fd::AsRawFd as _;
use std::sync::Arc;

use virtio_queue::QueueT as _;
use vmm_sys_util::eventfd::EventFd;

use super::worker::{BlkThread, Left};
use super::{Blk, FullDisks};
use crate::virtio::VirtioDevice as _;
use crate::virtio::testing::{Driver, Line, WRITE, activation, memory};

const BLOCK_BYTES: u32 = 4096;
const BLOCKS: u64 = 2048;
/// Requests at once, of two descriptors each.
const AT_ONCE: u64 = 8;
const HEADERS: u64 = 0x2_0000;
const DATA: u64 = 0x3_0000;
const DATA_STRIDE: u64 = 0x2000;

const IN: u32 = 0;
const FLUSH: u32 = 4;

struct Disk {
    blk: Blk,
    file: File,
    driver: Driver,
    line: Arc<Line>,
    kicks: Vec<EventFd>,
}

/// An unserved disk. Each block begins with its number.
fn disk() -> Disk {
    let mut file = tempfile::tempfile().unwrap();
    for number in 0..BLOCKS {
        let mut block = [0; BLOCK_BYTES as usize];
        block[..8].copy_from_slice(&number.to_le_bytes());
        file.write_all(&block).unwrap();
    }
    let blk = Blk::new(file.try_clone().unwrap(), false, &FullDisks::new().unwrap()).unwrap();
    Disk { blk, file, driver: Driver::new(&memory(), 0), line: Line::new(), kicks: Vec::new() }
}

impl Disk {
    fn activate(&mut self, queue: Option<virtio_queue::Queue>) {
        let queue = queue.unwrap_or_else(|| self.driver.queue());
        let (activation, kicks) =
            activation(&self.driver.memory, vec![queue], &self.line, self.blk.features());
        self.blk.activate(activation).unwrap();
        self.kicks = kicks;
    }

    /// Makes the kernel drop the file's cached content.
    fn forget(&self) {
        self.file.sync_all().unwrap();
        // SAFETY: a call with numbers alone.
        let result = unsafe { libc::posix_fadvise(self.file.as_raw_fd(), 0, 0, libc::POSIX_FADV_DONTNEED) };
        assert_eq!(result, 0);
    }

    /// Offers a request with its own place for data and status.
    fn offer(&mut self, place: u64, kind: u32, block: u64) {
        let (header, data) = (HEADERS + place * 16, DATA + place * DATA_STRIDE);
        self.driver.write(header, &u64::from(kind).to_le_bytes());
        self.driver.write(header + 8, &(block * u64::from(BLOCK_BYTES) / 512).to_le_bytes());
        let bytes = if kind == IN { BLOCK_BYTES } else { 0 };
        self.driver.write(data + u64::from(bytes), &[0xff]);
        self.driver.put(&[(header, 16, 0), (data, bytes + 1, WRITE)]);
    }

    fn check(&self, place: u64, block: u64) {
        let data = DATA + place * DATA_STRIDE;
        assert_eq!(self.driver.read::<8>(data), block.to_le_bytes());
        assert_eq!(self.driver.read::<1>(data + u64::from(BLOCK_BYTES)), [0]);
    }

    fn serve(&mut self) {
        self.kicks[0].write(1).unwrap();
        assert_eq!(self.driver.wait_used(&self.line, AT_ONCE as usize).len(), AT_ONCE as usize);
    }
}

/// Blocks all over the disk, by round and place.
fn block(round: u64, place: u64) -> u64 {
    (round * AT_ONCE + place) * 769 % BLOCKS
}

#[test]
fn what_is_not_in_memory_is_read_beside_flushes() {
    let mut disk = disk();
    disk.activate(None);
    for round in 0..100 {
        if round % 10 == 0 {
            disk.forget();
        }
        disk.offer(0, FLUSH, 0);
        for place in 1..AT_ONCE {
            disk.offer(place, IN, block(round, place));
        }
        disk.serve();
        assert_eq!(disk.driver.read::<1>(DATA), [0]);
        (1..AT_ONCE).for_each(|place| disk.check(place, block(round, place)));
    }
    assert_eq!(disk.blk.counts().faults, 0);
}

#[test]
fn a_pause_waits_for_what_the_disk_reads_and_leaves_the_rest() {
    let mut disk = disk();
    disk.activate(None);
    for round in 0..20 {
        disk.forget();
        for place in 0..AT_ONCE {
            disk.offer(place, IN, block(round, place));
        }
        disk.kicks[0].write(1).unwrap();
        let queue = disk.blk.pause().unwrap().remove(0);
        assert_eq!(queue.next_avail(), queue.next_used(), "what was taken was answered");
        disk.activate(Some(queue));
        disk.serve();
        (0..AT_ONCE).for_each(|place| disk.check(place, block(round, place)));
    }
}

#[test]
fn the_queue_is_handed_over_before_a_flush_waits_and_what_came_before_is_heard_of() {
    let mut disk = disk();
    let (activation, _kicks) =
        activation(&disk.driver.memory, vec![disk.driver.queue()], &disk.line, disk.blk.features());
    let worker = disk.blk.back_end(activation).unwrap();
    disk.offer(0, IN, 5);
    disk.offer(1, FLUSH, 0);
    disk.offer(2, IN, 6);
    let mut thread = BlkThread::new(true);
    let (mut taken, line) = (Vec::new(), disk.line.clone());
    let left = worker.batch(&mut thread, |queue| {
        taken.push((queue.crew.idle(), line.interrupts()));
        assert!(queue.ring.listen(), "there is a request for another thread");
    });
    assert_eq!((left, taken), (Left::Nothing, vec![(0, 1)]));
    assert_eq!(disk.driver.take_used().len(), 3);
    disk.check(0, 5);
    disk.check(2, 6);
    assert_eq!(worker.queue().crew.idle(), 1);
}
