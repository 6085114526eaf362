//! Several requests at once, while the host keeps some of them waiting.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use fuse_backend_rs::abi::fuse_abi::Opcode;

use super::{Guest, ROOT, le64, message};
use crate::virtio::fs::worker::THREADS_MAX;
use crate::virtio::testing::{Driver, Line, WRITE, activation, no_starts};
use crate::virtio::{Interrupt, VirtioDevice as _};

/// Place of the messages and answers of requests kept waiting by the host, apart from all others.
const HELD: u64 = 0x10_0000;
const HELD_BYTES: u64 = 0x1000;

/// The command for choosing a descriptor's signal (asm-generic/fcntl.h).
const F_SETSIG: i32 = 10;

/// A lease on a file. An open for writing waits for its end (fcntl(2)).
struct Lease(File);

impl Lease {
    fn take(guest: &Guest) -> Lease {
        let file = File::open(guest.dir.path().join("file")).unwrap();
        let set = |command, value: i32| {
            // SAFETY: both commands take a number alone.
            let done = unsafe { libc::fcntl(file.as_raw_fd(), command, value) };
            assert_eq!(done, 0, "{}", std::io::Error::last_os_error());
        };
        // A signal without an effect if nobody handles it, instead of SIGIO.
        set(F_SETSIG, libc::SIGURG);
        set(libc::F_SETLEASE, libc::F_RDLCK);
        Lease(file)
    }

    fn end(self) {
        // SAFETY: as above.
        unsafe { libc::fcntl(self.0.as_raw_fd(), libc::F_SETLEASE, libc::F_UNLCK) };
    }
}

impl Guest {
    /// Offers a request to open the leased file for writing.
    fn open_held(&mut self, node: u64, place: u64) {
        let at = HELD + place * HELD_BYTES;
        let body = [(libc::O_WRONLY).to_le_bytes(), [0; 4]].concat();
        let message = message(Opcode::Open as u32, node, &body);
        self.drivers[1].write(at, &message);
        let reply = (at + HELD_BYTES / 2, 0x100, WRITE);
        self.drivers[1].put(&[(at, message.len() as u32, 0), reply]);
        self.kicks[1].write(1).unwrap();
    }
}

/// More requests than threads.
const HELD_COUNT: usize = THREADS_MAX + 2;

/// A guest with a leased file.
fn leased() -> (Guest, u64, Lease) {
    // A starting process has the file open for writing, and there is no lease then.
    let _starts = no_starts();
    let mut guest = Guest::new();
    let node = guest.node("file");
    let lease = Lease::take(&guest);
    (guest, node, lease)
}

/// A guest after its request for [`HELD_COUNT`] opens of a leased file, and the lease.
fn with_held() -> (Guest, Lease) {
    let (mut guest, node, lease) = leased();
    for place in 0..HELD_COUNT {
        guest.open_held(node, place as u64);
    }
    (guest, lease)
}

#[test]
fn requests_that_the_host_keeps_waiting_leave_a_thread_for_others() {
    let (mut guest, node, lease) = leased();
    let held = THREADS_MAX as u64 - 1;
    for place in 0..held {
        guest.open_held(node, place);
        assert_eq!(guest.lookup(ROOT, "none").unwrap_err(), libc::ENOENT, "beside {} of them", place + 1);
    }
    lease.end();
    assert_eq!(guest.drivers[1].wait_used(&guest.line, held as usize).len(), held as usize);
    for place in 0..held {
        let header = guest.drivers[1].read::<16>(HELD + place * HELD_BYTES + HELD_BYTES / 2);
        assert_eq!((header[4..8].to_vec(), le64(&header, 8)), (vec![0; 4], 7));
    }
    assert_eq!(guest.device.counts().faults, 0);
}

#[test]
fn more_requests_than_threads_are_all_answered_once_the_host_goes_on() {
    let (mut guest, lease) = with_held();
    lease.end();
    assert_eq!(guest.drivers[1].wait_used(&guest.line, HELD_COUNT).len(), HELD_COUNT);
    assert_eq!(guest.device.counts().faults, 0);
}

#[test]
fn a_pause_waits_for_requests_at_work_and_what_is_left_is_done_after_it() {
    let (mut guest, lease) = with_held();
    let ended = std::thread::spawn(move || lease.end());
    let queues = guest.device.pause().unwrap();
    ended.join().unwrap();
    guest.activate(Some(queues));
    assert_eq!(guest.drivers[1].wait_used(&guest.line, HELD_COUNT).len(), HELD_COUNT);
    guest.node("file");
}

/// The line of a driver. At each interrupt it looks if it has to notify of its next request.
#[derive(Debug)]
struct Looks {
    line: Arc<Line>,
    driver: Driver,
    interrupts: AtomicU32,
    wishes: AtomicU32,
}

impl Interrupt for Looks {
    fn used_buffer(&self) -> io::Result<()> {
        self.interrupts.fetch_add(1, Ordering::SeqCst);
        self.wishes.fetch_add(u32::from(self.driver.wants_kicks()), Ordering::SeqCst);
        self.line.used_buffer()
    }
    fn config_changed(&self, config: &[u8]) -> io::Result<()> {
        self.line.config_changed(config)
    }
}

#[test]
fn a_driver_need_not_notify_while_the_share_is_about_to_look_for_more() {
    let mut guest = Guest::new();
    let queues = guest.device.pause().unwrap();
    let looks = Arc::new(Looks {
        line: guest.line.clone(),
        driver: Driver::new(&guest.memory, 1),
        interrupts: AtomicU32::new(0),
        wishes: AtomicU32::new(0),
    });
    let (mut activation, kicks) = activation(&guest.memory, queues, &guest.line, 0);
    activation.interrupt = looks.clone();
    guest.device.activate(activation).unwrap();
    guest.kicks = kicks;
    for _ in 0..100 {
        guest.node("file");
    }
    assert_eq!(looks.interrupts.load(Ordering::SeqCst), 100);
    assert_eq!(looks.wishes.load(Ordering::SeqCst), 0);
    let begun = Instant::now();
    while !looks.driver.wants_kicks() {
        assert!(begun.elapsed() < Duration::from_secs(60), "the share sleeps, and nobody would wake it");
        std::thread::yield_now();
    }
}
