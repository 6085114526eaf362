//! File locks: between two guests over one directory, and between a guest and the host.

use std::fs::{self, File};

use fuse_backend_rs::abi::fuse_abi::{FsOptions, Opcode};
use nix::fcntl::{FcntlArg, fcntl};
use rustix::fs::{FlockOperation, flock};

use super::{Guest, HEADER, REPLY_HEADER, le32, le64, message, serve};
use crate::virtio::VirtioDevice as _;
use crate::virtio::testing::{WRITE, no_starts, start};

const READ_LOCK: u32 = libc::F_RDLCK as u32;
const WRITE_LOCK: u32 = libc::F_WRLCK as u32;
const UNLOCK: u32 = libc::F_UNLCK as u32;
const END: u64 = i64::MAX as u64;

/// Place of the messages and answers of waiting requests, apart from all others.
const WAITING: u64 = 0x10_0000;
const WAITING_BYTES: u64 = 0x1000;

/// An open file of a guest, and the caller.
#[derive(Clone, Copy)]
struct Open {
    node: u64,
    handle: u64,
    owner: u64,
    pid: u32,
}

impl Open {
    fn of(self, owner: u64, pid: u32) -> Open {
        Open { owner, pid, ..self }
    }

    fn body(self, kind: u32, range: (u64, u64), flags: u32) -> Vec<u8> {
        let words = [self.handle, self.owner, range.0, range.1].map(u64::to_le_bytes).concat();
        [words, [kind, self.pid, flags, 0].map(u32::to_le_bytes).concat()].concat()
    }
}

impl Guest {
    fn open_file(&mut self, flags: i32) -> Open {
        let node = self.node("file");
        Open { node, handle: self.open(node, flags).unwrap(), owner: 1, pid: 100 }
    }

    fn set_lock(&mut self, open: Open, kind: u32, range: (u64, u64)) -> Result<(), i32> {
        self.ask(Opcode::Setlk, open.node, &open.body(kind, range, 0)).map(drop)
    }

    fn flock(&mut self, open: Open, kind: u32) -> Result<(), i32> {
        self.ask(Opcode::Setlk, open.node, &open.body(kind, (0, END), 1)).map(drop)
    }

    /// The type, the range and the process of a lock in the way.
    fn test_lock(&mut self, open: Open, kind: u32, range: (u64, u64)) -> (u32, (u64, u64), u32) {
        let found = self.ask(Opcode::Getlk, open.node, &open.body(kind, range, 0)).unwrap();
        (le32(&found, 16), (le64(&found, 0), le64(&found, 8)), le32(&found, 20))
    }

    /// Asks for a lock and for a wait, in a place of its own. The answer may never come.
    fn wait_for_lock(&mut self, place: u64, open: Open, kind: u32, flags: u32) -> u64 {
        let at = WAITING + place * WAITING_BYTES;
        let message = message(Opcode::Setlkw as u32, open.node, &open.body(kind, (0, END), flags));
        self.drivers[1].write(at, &message);
        let reply = at + WAITING_BYTES / 2;
        self.drivers[1].write(reply, &[0xee; REPLY_HEADER]);
        // A header apart from its arguments, as Linux has them.
        let arguments = (at + HEADER as u64, (message.len() - HEADER) as u32, 0);
        self.drivers[1].put(&[(at, HEADER as u32, 0), arguments, (reply, 0x100, WRITE)]);
        self.kicks[1].write(1).unwrap();
        reply
    }

    /// The error number of an answer, 0 for none.
    fn answered(&mut self, reply: u64) -> i32 {
        let used = self.drivers[1].wait_used(&self.line, 1);
        assert_eq!(used[0].1, REPLY_HEADER as u32);
        let header = self.drivers[1].read::<REPLY_HEADER>(reply);
        assert_eq!((le32(&header, 0), le64(&header, 8)), (REPLY_HEADER as u32, 7));
        -(le32(&header, 4) as i32)
    }

    /// Ends the waits of processes. They are named again until an answer has come, as the daemon does,
    /// because a request just taken by a thread is missed. Returns the answer's error number.
    fn interrupted(&mut self, reply: u64, pids: &[u32]) -> i32 {
        while self.drivers[1].take_used().is_empty() {
            self.device.link().interrupt_lock_waits(pids);
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
        -(le32(&self.drivers[1].read::<REPLY_HEADER>(reply), 4) as i32)
    }

    fn flush(&mut self, open: Open) {
        let body = [open.handle, 0, open.owner].map(u64::to_le_bytes).concat();
        self.ask(Opcode::Flush, open.node, &body).unwrap();
    }

    /// Ends the guest's open file. Its locks of flock(2) end too if the kernel says so.
    fn release(&mut self, open: Open, flags: u32) {
        let mut body = open.handle.to_le_bytes().to_vec();
        body.extend([0, flags].map(u32::to_le_bytes).concat());
        body.extend(open.owner.to_le_bytes());
        self.ask(Opcode::Release, open.node, &body).unwrap();
    }

    fn on_host(&self) -> File {
        File::options().read(true).write(true).open(self.dir.path().join("file")).unwrap()
    }
}

/// Two guests with one directory mounted.
fn pair() -> (Guest, Guest) {
    let first = Guest::new();
    let device = serve(first.dir.path(), i32::MAX);
    let second = Guest::over(device, tempfile::tempdir().unwrap());
    (first, second)
}

fn range_of_host(kind: libc::c_int) -> libc::flock {
    libc::flock { l_type: kind as libc::c_short, l_whence: 0, l_start: 0, l_len: 0, l_pid: 0 }
}

#[test]
fn two_guests_exclude_each_other_by_ranges() {
    let _starts = no_starts();
    let (mut one, mut two) = pair();
    assert!(one.mount_options().contains(FsOptions::POSIX_LOCKS | FsOptions::FLOCK_LOCKS));
    let (here, there) = (one.open_file(libc::O_RDWR), two.open_file(libc::O_RDWR));
    one.set_lock(here, WRITE_LOCK, (0, 9)).unwrap();
    assert_eq!(two.set_lock(there, WRITE_LOCK, (9, 20)), Err(libc::EAGAIN));
    assert_eq!(two.set_lock(there, READ_LOCK, (0, END)), Err(libc::EAGAIN));
    two.set_lock(there, WRITE_LOCK, (10, 20)).unwrap();
    assert_eq!(one.set_lock(here, READ_LOCK, (15, 15)), Err(libc::EAGAIN));
    one.set_lock(here, UNLOCK, (0, 4)).unwrap();
    two.set_lock(there, READ_LOCK, (0, 4)).unwrap();
    assert_eq!(two.set_lock(there, READ_LOCK, (0, 5)), Err(libc::EAGAIN));
    one.set_lock(here, UNLOCK, (0, END)).unwrap();
    two.set_lock(there, WRITE_LOCK, (0, END)).unwrap();
    assert_eq!(one.device.counts().faults + two.device.counts().faults, 0);
}

#[test]
fn owners_in_one_guest_exclude_each_other_and_an_owner_does_not_exclude_itself() {
    let _starts = no_starts();
    let mut guest = Guest::new();
    let one = guest.open_file(libc::O_RDWR);
    let two = guest.open_file(libc::O_RDWR).of(2, 200);
    guest.set_lock(one, READ_LOCK, (0, 9)).unwrap();
    guest.set_lock(two, READ_LOCK, (0, 9)).unwrap();
    assert_eq!(guest.set_lock(one, WRITE_LOCK, (0, 9)), Err(libc::EAGAIN));
    guest.set_lock(two, UNLOCK, (0, 9)).unwrap();
    guest.set_lock(one, WRITE_LOCK, (0, 9)).unwrap();
    // By another open file of the same process.
    guest.set_lock(two.of(1, 100), WRITE_LOCK, (5, 20)).unwrap();
}

#[test]
fn a_lock_in_the_way_is_found_with_its_process_or_with_none() {
    let _starts = no_starts();
    let (mut one, mut two) = pair();
    let (here, there) = (one.open_file(libc::O_RDWR), two.open_file(libc::O_RDWR));
    assert_eq!(one.test_lock(here, WRITE_LOCK, (0, END)), (UNLOCK, (0, END), 0));
    one.set_lock(here, WRITE_LOCK, (5, 14)).unwrap();
    assert_eq!(one.test_lock(here, WRITE_LOCK, (0, END)).0, UNLOCK);
    assert_eq!(one.test_lock(here.of(2, 200), READ_LOCK, (0, END)), (WRITE_LOCK, (5, 14), 100));
    assert_eq!(two.test_lock(there, READ_LOCK, (0, END)), (WRITE_LOCK, (5, 14), 0));
    one.set_lock(here, READ_LOCK, (5, END)).unwrap();
    assert_eq!(two.test_lock(there, WRITE_LOCK, (0, 7)), (READ_LOCK, (5, END), 0));
    assert_eq!(two.test_lock(there, READ_LOCK, (0, 7)).0, UNLOCK);
}

#[test]
fn a_file_that_is_closed_by_its_owner_is_not_locked_by_it_any_more() {
    let _starts = no_starts();
    let (mut one, mut two) = pair();
    let (here, there) = (one.open_file(libc::O_RDWR), two.open_file(libc::O_RDWR));
    one.set_lock(here, WRITE_LOCK, (0, 9)).unwrap();
    // A child with the inherited file.
    one.flush(here.of(2, 200));
    assert_eq!(two.set_lock(there, WRITE_LOCK, (0, 9)), Err(libc::EAGAIN));
    // Any open file of the owner does it.
    let again = one.open_file(libc::O_RDONLY);
    one.flush(again);
    two.set_lock(there, WRITE_LOCK, (0, 9)).unwrap();
}

#[test]
fn the_end_of_an_open_file_frees_what_no_owner_is_left_to_free() {
    let _starts = no_starts();
    let (mut one, mut two) = pair();
    let (here, there) = (one.open_file(libc::O_RDWR), two.open_file(libc::O_RDWR));
    // A lock of an open description in the guest. The guest's kernel does not free it by itself.
    one.set_lock(here.of(0xf11e, 100), WRITE_LOCK, (0, 9)).unwrap();
    let other = one.open_file(libc::O_RDWR);
    one.release(other, 0);
    assert_eq!(two.set_lock(there, WRITE_LOCK, (0, 9)), Err(libc::EAGAIN));
    one.release(here, 0);
    two.set_lock(there, WRITE_LOCK, (0, 9)).unwrap();
}

#[test]
fn flock_holds_between_guests_and_apart_from_ranges() {
    let _starts = no_starts();
    let (mut one, mut two) = pair();
    let (here, there) = (one.open_file(libc::O_RDONLY), two.open_file(libc::O_RDWR));
    one.flock(here, WRITE_LOCK).unwrap();
    assert_eq!(two.flock(there, READ_LOCK), Err(libc::EAGAIN));
    two.set_lock(there, WRITE_LOCK, (0, END)).unwrap();
    one.flock(here, READ_LOCK).unwrap();
    two.flock(there, READ_LOCK).unwrap();
    assert_eq!(one.flock(here, WRITE_LOCK), Err(libc::EAGAIN));
    two.flock(there, UNLOCK).unwrap();
    one.flock(here, WRITE_LOCK).unwrap();
    // FUSE_RELEASE_FLOCK_UNLOCK.
    one.release(here, 2);
    two.flock(there, WRITE_LOCK).unwrap();
}

#[test]
fn programs_of_the_host_and_of_a_guest_exclude_each_other() {
    let _starts = no_starts();
    let mut guest = Guest::new();
    let (open, host) = (guest.open_file(libc::O_RDWR), guest.on_host());
    guest.set_lock(open, WRITE_LOCK, (0, 0)).unwrap();
    let range = range_of_host(libc::F_WRLCK);
    assert_eq!(fcntl(&host, FcntlArg::F_OFD_SETLK(&range)), Err(nix::errno::Errno::EAGAIN));
    guest.set_lock(open, UNLOCK, (0, END)).unwrap();
    fcntl(&host, FcntlArg::F_OFD_SETLK(&range)).unwrap();
    assert_eq!(guest.set_lock(open, READ_LOCK, (3, 3)), Err(libc::EAGAIN));
    flock(&host, FlockOperation::LockExclusive).unwrap();
    assert_eq!(guest.flock(open, READ_LOCK), Err(libc::EAGAIN));
}

#[test]
fn a_request_waits_while_others_are_served_and_has_the_lock_when_it_is_free() {
    let mut guest = Guest::new();
    let one = guest.open_file(libc::O_RDWR);
    let two = one.of(2, 200);
    for (flags, place) in [(0, 0), (1, 1)] {
        guest.ask(Opcode::Setlk, one.node, &one.body(WRITE_LOCK, (0, END), flags)).unwrap();
        let reply = guest.wait_for_lock(place, two, WRITE_LOCK, flags);
        // Served meanwhile, in the same ring.
        assert_eq!(guest.read(one.node, one.handle, 7).unwrap(), b"content");
        assert_eq!(guest.drivers[1].read::<1>(reply), [0xee]);
        // The answers to both may come at once, in either order.
        let unlock = message(Opcode::Setlk as u32, one.node, &one.body(UNLOCK, (0, END), flags));
        guest.drivers[1].write(super::REQUEST, &unlock);
        guest.drivers[1].put(&[(super::REQUEST, unlock.len() as u32, 0), (super::REPLY, 0x100, WRITE)]);
        guest.kicks[1].write(1).unwrap();
        assert_eq!(guest.drivers[1].wait_used(&guest.line, 2).len(), 2);
        assert_eq!(le32(&guest.drivers[1].read::<REPLY_HEADER>(reply), 4), 0);
    }
    assert_eq!(guest.set_lock(one, READ_LOCK, (0, 0)), Err(libc::EAGAIN));
    assert_eq!(guest.flock(one, READ_LOCK), Err(libc::EAGAIN));
}

#[test]
fn a_lock_that_the_host_gives_up_is_had_without_anyone_asking_again() {
    let mut guest = Guest::new();
    let (open, host) = (guest.open_file(libc::O_RDWR), guest.on_host());
    flock(&host, FlockOperation::LockExclusive).unwrap();
    let reply = guest.wait_for_lock(0, open, READ_LOCK, 1);
    guest.node("file");
    assert_eq!(guest.drivers[1].read::<1>(reply), [0xee]);
    drop(host);
    assert_eq!(guest.answered(reply), 0);
}

#[test]
fn a_wait_of_a_killed_process_is_interrupted_and_those_of_others_are_not() {
    let mut guest = Guest::new();
    let open = guest.open_file(libc::O_RDWR);
    guest.set_lock(open, WRITE_LOCK, (0, END)).unwrap();
    let killed = guest.wait_for_lock(0, open.of(2, 200), WRITE_LOCK, 0);
    let patient = guest.wait_for_lock(1, open.of(3, 300), WRITE_LOCK, 0);
    guest.node("file");
    assert_eq!(guest.interrupted(killed, &[1, 200]), libc::EINTR);
    guest.node("file");
    assert_eq!(guest.drivers[1].read::<1>(patient), [0xee]);
    assert_eq!(guest.interrupted(patient, &[300]), libc::EINTR);
}

#[test]
fn a_wait_outlives_a_pause_and_not_a_reset() {
    let _starts = no_starts();
    let mut guest = Guest::new();
    let (open, host) = (guest.open_file(libc::O_RDWR), guest.on_host());
    flock(&host, FlockOperation::LockExclusive).unwrap();
    let reply = guest.wait_for_lock(0, open, WRITE_LOCK, 1);
    guest.node("file");
    let queues = guest.device.pause().unwrap();
    guest.activate(Some(queues));
    flock(&host, FlockOperation::Unlock).unwrap();
    assert_eq!(guest.answered(reply), 0);
    // The guest holds it now. The reset releases it, and waiting requests are forgotten.
    let other = guest.open_file(libc::O_RDWR).of(2, 200);
    let reply = guest.wait_for_lock(1, other, WRITE_LOCK, 1);
    guest.node("file");
    guest.start_over();
    flock(&host, FlockOperation::NonBlockingLockExclusive).unwrap();
    guest.node("file");
    assert_eq!(guest.drivers[1].read::<1>(reply), [0xee]);
}

#[test]
fn a_guest_has_no_endless_number_of_ranges() {
    let mut guest = Guest::new();
    let open = guest.open_file(libc::O_RDWR);
    let every_second = |guest: &mut Guest, kind| {
        let lock = |number: u64| guest.set_lock(open, kind, (2 * number, 2 * number));
        (0..20_000).map(lock).take_while(Result::is_ok).count()
    };
    assert_eq!(every_second(&mut guest, READ_LOCK), 16_384);
    assert_eq!(guest.set_lock(open.of(2, 200), WRITE_LOCK, (100_000, 100_009)), Err(libc::ENOLCK));
    guest.set_lock(open, UNLOCK, (0, END)).unwrap();
    // An unlock makes two ranges of one.
    guest.set_lock(open, WRITE_LOCK, (0, END)).unwrap();
    assert_eq!(every_second(&mut guest, UNLOCK), 16_384);
}

#[test]
fn requests_for_locks_that_make_no_sense_are_refused() {
    let _starts = no_starts();
    let mut guest = Guest::new();
    let open = guest.open_file(libc::O_RDWR);
    let invalid = guest.wait_for_lock(0, open.of(2, 200), 77, 0);
    assert_eq!(guest.answered(invalid), libc::EINVAL);
    let nowhere = Open { handle: 12345, ..open };
    assert_eq!(guest.set_lock(nowhere, READ_LOCK, (0, 9)), Err(libc::EBADF));
    assert_eq!(guest.set_lock(open, READ_LOCK, (9, 0)), Err(libc::EINVAL));
    assert_eq!(guest.set_lock(open, READ_LOCK, (0, u64::MAX)), Err(libc::EINVAL));
    // Nothing of an owner without locks.
    guest.set_lock(open.of(2, 200), UNLOCK, (0, 9)).unwrap();
    guest.flock(open, UNLOCK).unwrap();
    // An answer without a place.
    let faults = guest.device.counts().faults;
    let body = open.body(READ_LOCK, (0, END), 0);
    let request = message(Opcode::Setlkw as u32, open.node, &body);
    assert_eq!(guest.send(&request, &[(super::REPLY, 8, WRITE)]), 0);
    assert_eq!(guest.device.counts().faults, faults + 1);
}

#[test]
fn a_description_that_the_host_will_not_write_to_has_shared_locks_alone() {
    let mut guest = Guest::new();
    let path = guest.dir.path().join("sub/program");
    fs::copy("/bin/sleep", &path).unwrap();
    let mut program = start(std::process::Command::new(&path).arg("60"));
    let directory = guest.node("sub");
    let node = le64(&guest.lookup(directory, "program").unwrap(), 0);
    let open = Open { node, handle: guest.open(node, libc::O_RDONLY).unwrap(), owner: 1, pid: 100 };
    // A running program's file is not opened for writing.
    let shared = guest.set_lock(open, READ_LOCK, (0, 9));
    let exclusive = guest.set_lock(open, WRITE_LOCK, (0, 9));
    let whole = guest.flock(open, WRITE_LOCK);
    program.kill().unwrap();
    program.wait().unwrap();
    assert_eq!((shared, exclusive, whole), (Ok(()), Err(libc::EBADF), Ok(())));
}
