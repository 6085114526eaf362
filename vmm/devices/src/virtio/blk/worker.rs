//! The disk's back end: takes requests off the queue, one after the other, and carries them out on the
//! file, with the data going between guest memory and the page cache without a stop.

use std::fs::File;
use std::io;
use std::os::fd::AsFd as _;
use std::sync::Arc;

use virtio_bindings::virtio_blk::VIRTIO_BLK_ID_BYTES;
use virtio_queue::Queue;
use vmm_sys_util::eventfd::EventFd;
use vmm_sys_util::fallocate::{FallocateMode, fallocate};

use super::request::{Limits, Operation, Range, Request, Status, parse};
use crate::virtio::Interrupt;
use crate::virtio::chain::Chain;
use crate::virtio::iovec::Iovecs;
use crate::virtio::ring::{Faults, Ring};
use crate::virtio::worker::{Stop, Wakeups};

/// Requests taken before the worker looks whether it is to stop.
const BATCH: usize = 16;

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
    /// The driver cannot flush, so each write must be on the disk before it is answered.
    pub(super) write_through: bool,
    pub(super) chain: Chain,
    pub(super) iovecs: Iovecs,
    pub(super) faults: Faults,
}

impl BlkWorker {
    /// Serves until `stop` is readable, then gives the queue back.
    pub(super) fn run(mut self, stop: Stop) -> Vec<Queue> {
        if let Err(error) = self.serve(stop) {
            tracing::error!(%error, "a disk's thread cannot wait for requests");
        }
        vec![self.ring.into_queue()]
    }

    fn serve(&mut self, stop: Stop) -> io::Result<()> {
        let wakeups = Wakeups::new(stop)?;
        wakeups.add(&self.event, QUEUE, false)?;
        // A disk that goes on after a pause may have requests that nobody notifies of again.
        let mut work_left = true;
        loop {
            let woken = wakeups.wait(work_left)?;
            if woken.stop {
                return Ok(());
            }
            if woken.has(QUEUE) {
                let _ = self.event.read();
                work_left = true;
            }
            if work_left {
                work_left = self.batch();
            }
        }
    }

    /// Serves some requests. Returns whether there are more.
    pub(super) fn batch(&mut self) -> bool {
        self.ring.mute();
        for _ in 0..BATCH {
            let Some(taken) = self.ring.take(&mut self.chain) else { return self.ring.listen() };
            let written = match parse(&mut self.chain, taken.fault, self.limits) {
                Some(request) => self.answer(request),
                None => {
                    // A chain with a fault was counted when it was taken.
                    if taken.fault.is_none() {
                        self.faults.count();
                    }
                    0
                }
            };
            self.ring.complete(taken, written);
            // One by one: a driver that waits for this request should not wait for the next as well.
            self.ring.signal(&*self.interrupt);
        }
        true
    }

    /// Carries a request out and writes its status. Returns the bytes written to guest memory.
    fn answer(&mut self, request: Request) -> u32 {
        let outcome = request.operation.and_then(|operation| self.carry_out(operation));
        let (status, written) = match outcome {
            Ok(written) => (Status::Ok, written),
            Err(status) => (status, 0),
        };
        if self.chain.writable.write_byte(request.status, status as u8).is_none() {
            self.faults.count();
            return 0;
        }
        written.saturating_add(1)
    }

    fn carry_out(&mut self, operation: Operation) -> Result<u32, Status> {
        match operation {
            Operation::Read { offset } => {
                let bytes = self.chain.writable.bytes();
                let buffers = self.iovecs.over([&self.chain.writable]).map_err(|_| Status::IoError)?;
                buffers.read_at(self.file.as_fd(), offset).map_err(|_| Status::IoError)?;
                Ok(u32::try_from(bytes).unwrap_or(u32::MAX))
            }
            Operation::Write { offset } => {
                let buffers = self.iovecs.over([&self.chain.readable]).map_err(|_| Status::IoError)?;
                buffers.write_at(self.file.as_fd(), offset).map_err(|_| Status::IoError)?;
                if self.write_through { self.flush() } else { Ok(0) }
            }
            Operation::Flush => self.flush(),
            Operation::Identify => {
                let mut identity = [0; VIRTIO_BLK_ID_BYTES as usize];
                identity[..IDENTITY.len()].copy_from_slice(IDENTITY);
                let room = identity.len().min(self.chain.writable.bytes() as usize);
                let written = self.chain.writable.write_at(0, &identity[..room]);
                written.map(|()| room as u32).ok_or(Status::IoError)
            }
            Operation::Discard(ranges) => self.over(&ranges, punch),
            Operation::WriteZeroes(ranges) => self.over(&ranges, zero),
        }
    }

    fn flush(&self) -> Result<u32, Status> {
        self.file.sync_data().map(|()| 0).map_err(|_| Status::IoError)
    }

    fn over(&self, ranges: &[Range], act: impl Fn(&File, Range) -> io::Result<()>) -> Result<u32, Status> {
        for range in ranges.iter().filter(|range| range.length > 0) {
            act(&self.file, *range).map_err(|error| match error.raw_os_error() {
                Some(libc::EOPNOTSUPP) => Status::Unsupported,
                _ => Status::IoError,
            })?;
        }
        if self.write_through { self.flush() } else { Ok(0) }
    }
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
