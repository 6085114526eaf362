//! The disk's back end: takes requests off the queue, one after the other, and carries them out on the
//! file, with the data going between guest memory and the page cache without a stop.
//!
//! A write that finds no room on the node stays on the queue, and with it all that comes after it, and is tried again:
//! a guest that read an I/O error instead would have lost what its programs wrote long ago.

use std::fs::File;
use std::io;
use std::os::fd::AsFd as _;
use std::sync::Arc;
use std::time::{Duration, Instant};

use virtio_bindings::virtio_blk::VIRTIO_BLK_ID_BYTES;
use virtio_queue::Queue;
use vmm_sys_util::eventfd::EventFd;
use vmm_sys_util::fallocate::{FallocateMode, fallocate};

use super::config::config;
use super::full_disks::{FullDisk, FullDisks};
use super::request::{Limits, Operation, Range, Request, Status, parse};
use super::size::Size;
use super::unheard::Unheard;
use super::urgency::{Urgency, Wakings};
use crate::virtio::Interrupt;
use crate::virtio::chain::Chain;
use crate::virtio::iovec::Iovecs;
use crate::virtio::ring::{Faults, Ring};
use crate::virtio::worker::{Stop, Wakeups};

/// Requests taken before the worker looks whether it is to stop.
const BATCH: usize = 16;

/// How long a write that found no room waits until it is tried again: soon after there is room, and at no cost to speak
/// of while there is none.
const ROOM_RETRY: Duration = Duration::from_millis(250);

/// Number of the queue's event among the worker's wake-ups.
const QUEUE: u8 = 0;

/// The answer to GET_ID; shorter than its field, so the rest is zero.
const IDENTITY: &[u8] = b"podvisor";

/// A disk at work.
#[derive(Debug)]
pub(super) struct BlkWorker {
    pub(super) ring: Ring,
    pub(super) event: EventFd,
    pub(super) interrupt: Arc<dyn Interrupt>,
    pub(super) file: Arc<File>,
    pub(super) limits: Limits,
    /// The size of a block device.
    pub(super) size: Size,
    /// The driver cannot flush, so each write must be on the disk before it is answered.
    pub(super) write_through: bool,
    pub(super) chain: Chain,
    pub(super) iovecs: Iovecs,
    pub(super) faults: Faults,
    /// The VM's disks that wait for room.
    pub(super) full_disks: FullDisks,
    /// Counted there while this one waits.
    pub(super) full: Option<FullDisk>,
    pub(super) wakings: Wakings,
    /// Requests that were served since the worker was woken.
    pub(super) served: u32,
}

/// Outcome of looking at the queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Left {
    /// The driver notifies of the next request.
    Nothing,
    /// There are more requests.
    Work,
    /// The next request finds no room on the node.
    NoRoom,
}

/// Sets how urgent the calling thread is. A thread that cannot be so stays as it is.
fn set_urgency(urgency: Urgency) {
    let set = match urgency {
        Urgency::Patient => vmm_sched_batch::set_sched_batch(),
        Urgency::Urgent => vmm_sched_batch::set_sched_other(),
    };
    if let Err(error) = set {
        tracing::warn!(%error, "a disk's thread keeps its scheduling policy");
    }
}

/// A request that cannot be carried out.
#[derive(Debug)]
enum Failed {
    /// The answer to the driver.
    Status(Status),
    /// The file's disk is full; nothing was answered.
    NoRoom,
}

impl From<Status> for Failed {
    fn from(status: Status) -> Failed {
        Failed::Status(status)
    }
}

impl BlkWorker {
    /// Serves until `stop` is readable, then gives the queue back.
    pub(super) fn run(mut self, stop: Stop) -> Vec<Queue> {
        set_urgency(Urgency::Patient);
        if let Err(error) = self.serve(stop) {
            tracing::error!(%error, "a disk's thread cannot wait for requests");
        }
        vec![self.ring.into_queue()]
    }

    fn serve(&mut self, stop: Stop) -> io::Result<()> {
        let wakeups = Wakeups::new(stop)?;
        // The event wakes the thread each time that the driver writes it, and is never read.
        wakeups.add(&self.event, QUEUE, true)?;
        // A disk that goes on after a pause may have requests that nobody notifies of again.
        let mut left = Left::Work;
        loop {
            let woken = match left {
                Left::Nothing => wakeups.wait_at_most(self.patience())?,
                Left::Work => wakeups.wait(true)?,
                Left::NoRoom => wakeups.wait_at_most(Some(ROOM_RETRY))?,
            };
            if woken.stop {
                return Ok(());
            }
            self.look_at_size();
            if woken.has(QUEUE) || left != Left::Nothing {
                left = self.batch();
            }
            if left == Left::Nothing
                && self.served > 0
                && let Some(urgency) = self.wakings.add(std::mem::take(&mut self.served))
            {
                set_urgency(urgency);
            }
        }
    }

    /// The time until the size is to be looked at; none for a file, whose size stays.
    fn patience(&self) -> Option<Duration> {
        (!self.limits.is_regular).then(|| self.size.patience())
    }

    /// Reports to the driver that a block device has grown.
    pub(super) fn look_at_size(&mut self) {
        if self.limits.is_regular {
            return;
        }
        if let Some(sectors) = self.size.look(&self.file) {
            self.limits.sectors = sectors;
            if self.interrupt.config_changed(&config(sectors)).is_err() {
                self.faults.count();
            }
        }
    }

    /// Serves some requests, and lets the driver hear of all of them. Returns whether there are more.
    pub(super) fn batch(&mut self) -> Left {
        self.ring.mute();
        let left = self.serve_some();
        self.ring.signal(&*self.interrupt);
        if left == Left::Nothing && self.ring.listen() { Left::Work } else { left }
    }

    fn serve_some(&mut self) -> Left {
        let mut unheard = Unheard::default();
        for _ in 0..BATCH {
            let begun = Instant::now();
            let Some(taken) = self.ring.take(&mut self.chain) else { return Left::Nothing };
            let written = match parse(&mut self.chain, taken.fault, self.limits) {
                Some(request) => match self.answer(request) {
                    Some(written) => written,
                    None => {
                        // Taken again at the next look, also by whoever takes the queue over.
                        self.ring.put_back(1);
                        return Left::NoRoom;
                    }
                },
                None => {
                    // A chain with a fault was counted when it was taken.
                    if taken.fault.is_none() {
                        self.faults.count();
                    }
                    0
                }
            };
            self.ring.complete(taken, written);
            self.served = self.served.saturating_add(1);
            // A driver that waits for this request should not wait for the next as well, unless that takes no time to speak of.
            if unheard.add(begun.elapsed()) {
                self.ring.signal(&*self.interrupt);
            }
        }
        Left::Work
    }

    /// Carries a request out and writes its status. Returns the bytes written to guest memory; `None` where the request
    /// found no room and is not answered.
    fn answer(&mut self, request: Request) -> Option<u32> {
        let outcome = request.operation.map_err(Failed::from).and_then(|operation| self.carry_out(operation));
        let (status, written) = match outcome {
            Ok(written) => (Status::Ok, written),
            Err(Failed::Status(status)) => (status, 0),
            Err(Failed::NoRoom) => {
                self.full.get_or_insert_with(|| self.full_disks.enter());
                return None;
            }
        };
        self.full = None;
        if self.chain.writable.write_byte(request.status, status as u8).is_none() {
            self.faults.count();
            return Some(0);
        }
        Some(written.saturating_add(1))
    }

    fn carry_out(&mut self, operation: Operation) -> Result<u32, Failed> {
        match operation {
            Operation::Read { offset } => {
                let bytes = self.chain.writable.bytes();
                let buffers = self.iovecs.over([&self.chain.writable]).map_err(|_| Status::IoError)?;
                buffers.read_at(self.file.as_fd(), offset).map_err(|_| Status::IoError)?;
                Ok(u32::try_from(bytes).unwrap_or(u32::MAX))
            }
            Operation::Write { offset } => {
                let buffers = self.iovecs.over([&self.chain.readable]).map_err(|_| Status::IoError)?;
                buffers.write_at(self.file.as_fd(), offset).map_err(|error| self.failed(&error))?;
                if self.write_through { self.flush() } else { Ok(0) }
            }
            Operation::Flush => self.flush(),
            Operation::Identify => {
                let mut identity = [0; VIRTIO_BLK_ID_BYTES as usize];
                identity[..IDENTITY.len()].copy_from_slice(IDENTITY);
                let room = identity.len().min(self.chain.writable.bytes() as usize);
                let written = self.chain.writable.write_at(0, &identity[..room]);
                written.map(|()| room as u32).ok_or(Failed::from(Status::IoError))
            }
            Operation::Discard(ranges) => self.over(&ranges, punch),
            Operation::WriteZeroes(ranges) => self.over(&ranges, zero),
        }
    }

    /// Decides what a request that changes the file ends with. A block device without room has been cut short, and stays so.
    fn failed(&self, error: &io::Error) -> Failed {
        if self.limits.is_regular && lacks_room(error) { Failed::NoRoom } else { Status::IoError.into() }
    }

    /// Never waits for room: the kernel reports what it could not write once, and has lost it then.
    fn flush(&self) -> Result<u32, Failed> {
        self.file.sync_data().map(|()| 0).map_err(|_| Status::IoError.into())
    }

    fn over(&self, ranges: &[Range], act: impl Fn(&File, Range) -> io::Result<()>) -> Result<u32, Failed> {
        for range in ranges.iter().filter(|range| range.length > 0) {
            act(&self.file, *range).map_err(|error| match error.raw_os_error() {
                Some(libc::EOPNOTSUPP) => Status::Unsupported.into(),
                _ => self.failed(&error),
            })?;
        }
        if self.write_through { self.flush() } else { Ok(0) }
    }
}

/// Whether a file that could not be written to can be once there is room.
fn lacks_room(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::ENOSPC | libc::EDQUOT))
}

fn punch(file: &File, range: Range) -> io::Result<()> {
    fallocate(file, FallocateMode::PunchHole, true, range.offset, range.length).map_err(io::Error::from)
}

/// Makes the range read as zeroes, and keeps its space unless it may be given back.
fn zero(file: &File, range: Range) -> io::Result<()> {
    if range.unmap {
        return punch(file, range);
    }
    let result = fallocate(file, FallocateMode::ZeroRange, true, range.offset, range.length);
    match result.map_err(io::Error::from) {
        // Not every file system knows this one (tmpfs does not); a hole reads the same.
        Err(error) if error.raw_os_error() == Some(libc::EOPNOTSUPP) => punch(file, range),
        other => other,
    }
}
