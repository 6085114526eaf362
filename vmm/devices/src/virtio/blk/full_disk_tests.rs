//! A disk with its file on a full file system: a tmpfs of 16 KiB, in a mount namespace of its own process.

use std::fs::File;
use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::fs::FileExt as _;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::Arc;

use vmm_sys_util::eventfd::EventFd;

use super::{Blk, FullDisks};
use crate::virtio::VirtioDevice as _;
use crate::virtio::testing::{Driver, Line, WRITE, activation, memory, start};

const DISK_BYTES: u64 = 64 << 10;
const HEADER: u64 = 0x2_0000;
const DATA: u64 = 0x3_0000;
const STATUS: u64 = 0x2_1000;

/// Requests are numbered so: virtio 1.2, section 5.2.6.
const OUT: u32 = 1;

/// An enlargeable file system. It ends with its process.
struct SmallTmpfs {
    process: Child,
    orders: ChildStdin,
    answers: BufReader<std::process::ChildStdout>,
}

impl SmallTmpfs {
    fn new() -> SmallTmpfs {
        let script = "mount -t tmpfs -o size=16k tmpfs /tmp && : >/tmp/disk && echo ready && \
                      read order && mount -o remount,size=1m /tmp && echo larger && read end";
        let mut command = Command::new("unshare");
        command.args(["--user", "--map-root-user", "--mount", "sh", "-c", script]);
        let mut process = start(command.stdin(Stdio::piped()).stdout(Stdio::piped()));
        let (orders, answers) = (process.stdin.take().unwrap(), process.stdout.take().unwrap());
        let mut small = SmallTmpfs { process, orders, answers: BufReader::new(answers) };
        small.expect("ready");
        small
    }

    fn expect(&mut self, word: &str) {
        let mut line = String::new();
        self.answers.read_line(&mut line).unwrap();
        assert_eq!(line.trim(), word);
    }

    fn disk(&self) -> File {
        let path = format!("/proc/{}/root/tmp/disk", self.process.id());
        let file = File::options().read(true).write(true).open(path).unwrap();
        file.set_len(DISK_BYTES).unwrap();
        file
    }

    fn make_larger(&mut self) {
        self.orders.write_all(b"larger\n").unwrap();
        self.expect("larger");
    }
}

impl Drop for SmallTmpfs {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

struct Disk {
    blk: Blk,
    file: File,
    full: FullDisks,
    driver: Driver,
    line: Arc<Line>,
    kicks: Vec<EventFd>,
}

fn disk(file: File) -> Disk {
    let (memory, full) = (memory(), FullDisks::new().unwrap());
    let mut blk = Blk::new(file.try_clone().unwrap(), false, &full).unwrap();
    let driver = Driver::new(&memory, 0);
    let line = Line::new();
    let (activation, kicks) = activation(&memory, vec![driver.queue()], &line, blk.features());
    blk.activate(activation).unwrap();
    Disk { blk, file, full, driver, line, kicks }
}

impl Disk {
    /// Sends a write of 16 KiB, the whole room of the file system.
    fn write(&mut self, sector: u64) {
        self.driver.write(HEADER, &u64::from(OUT).to_le_bytes());
        self.driver.write(HEADER + 8, &sector.to_le_bytes());
        self.driver.write(STATUS, &[0xff]);
        self.driver.write(DATA, &[sector as u8; 16 << 10]);
        self.driver.put(&[(HEADER, 16, 0), (DATA, 16 << 10, 0), (STATUS, 1, WRITE)]);
        self.kicks[0].write(1).unwrap();
    }

    fn answered(&mut self) -> u8 {
        self.driver.wait_used(&self.line, 1);
        self.driver.read::<1>(STATUS)[0]
    }

    fn until_full(&self, count: u32) {
        while self.full.count() != count {
            std::thread::yield_now();
        }
    }

    fn content(&self, sector: u64) -> u8 {
        let mut byte = [0];
        self.file.read_exact_at(&mut byte, sector * 512).unwrap();
        byte[0]
    }
}

#[test]
fn a_write_without_room_waits_and_is_done_once_there_is_room() {
    let mut small = SmallTmpfs::new();
    let mut disk = disk(small.disk());
    disk.write(1);
    // The first sector lies in a page with others: five pages are one too many.
    disk.until_full(1);
    assert!(disk.full.changed().read().is_ok());
    assert_eq!(disk.driver.read::<1>(STATUS), [0xff], "nothing is answered");
    small.make_larger();
    assert_eq!(disk.answered(), 0);
    disk.until_full(0);
    assert_eq!((disk.content(1), disk.content(32)), (1, 1));
    // All is as before.
    disk.write(64);
    assert_eq!((disk.answered(), disk.content(64), disk.full.count()), (0, 64, 0));
}

#[test]
fn a_disk_without_room_is_stopped_and_its_write_is_left_for_the_next() {
    let mut small = SmallTmpfs::new();
    let mut before = disk(small.disk());
    before.write(9);
    before.until_full(1);
    let queues = before.blk.pause().unwrap();
    assert_eq!(before.full.count(), 0, "a disk that is stopped waits for nothing");
    small.make_larger();
    let mut after = Blk::new(before.file.try_clone().unwrap(), false, &before.full).unwrap();
    let (activation, _kicks) = activation(&before.driver.memory, queues, &before.line, after.features());
    after.activate(activation).unwrap();
    assert_eq!((before.answered(), before.content(9)), (0, 9));
}
