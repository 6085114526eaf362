//! Carries out requests on the disk's file. The data goes directly between guest memory and the page cache.
//!
//! A request is tried first without waiting for the node's disk: a read of cached content, a write into the
//! page cache.

use std::fs::File;
use std::io;
use std::os::fd::AsFd as _;

use virtio_bindings::virtio_blk::VIRTIO_BLK_ID_BYTES;
use vmm_sys_util::fallocate::{FallocateMode, fallocate};

use super::request::{Operation, Range, Status};
use crate::virtio::chain::Chain;
use crate::virtio::iovec::Iovecs;

/// The answer to GET_ID; shorter than its field, so the rest is zero.
const IDENTITY: &[u8] = b"podvisor";

/// A disk's file and its properties.
#[derive(Clone, Copy, Debug)]
pub(super) struct Content<'a> {
    pub(super) file: &'a File,
    /// A regular file. It takes more space on the node as it is written to.
    pub(super) is_regular: bool,
    /// The driver cannot flush, so each write must be on the disk before its answer.
    pub(super) write_through: bool,
}

/// Whether an operation may make its thread wait for the node's disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wait {
    /// No waiting: an operation returns without any effect if it would have to wait.
    Never,
    /// As long as the disk takes.
    ForDisk,
}

/// The reason why a request was not carried out.
#[derive(Debug)]
pub(super) enum Failed {
    /// The answer to the driver.
    Status(Status),
    /// The file's disk is full; nothing was answered.
    NoRoom,
    /// The request has to wait for the node's disk; nothing was answered.
    WouldWait,
}

impl From<Status> for Failed {
    fn from(status: Status) -> Failed {
        Failed::Status(status)
    }
}

impl Content<'_> {
    /// Carries out an operation on the data of `chain`. Returns the bytes written to guest memory.
    pub(super) fn carry_out(
        self,
        operation: &Operation,
        chain: &Chain,
        iovecs: &mut Iovecs,
        wait: Wait,
    ) -> Result<u32, Failed> {
        match operation {
            Operation::Read { offset } => self.read(*offset, chain, iovecs, wait),
            Operation::Write { offset } => {
                let buffers = iovecs.over([&chain.readable]).map_err(|_| Status::IoError)?;
                buffers.write_at(self.file.as_fd(), *offset).map_err(|error| self.failed(&error))?;
                if self.write_through { self.flush() } else { Ok(0) }
            }
            Operation::Flush if wait == Wait::Never => Err(Failed::WouldWait),
            Operation::Flush => self.flush(),
            Operation::Identify => {
                let mut identity = [0; VIRTIO_BLK_ID_BYTES as usize];
                identity[..IDENTITY.len()].copy_from_slice(IDENTITY);
                let room = identity.len().min(chain.writable.bytes() as usize);
                let written = chain.writable.write_at(0, &identity[..room]);
                written.map(|()| room as u32).ok_or(Failed::from(Status::IoError))
            }
            Operation::Discard(ranges) => self.over(ranges, punch),
            Operation::WriteZeroes(ranges) => self.over(ranges, zero),
        }
    }

    fn read(self, offset: u64, chain: &Chain, iovecs: &mut Iovecs, wait: Wait) -> Result<u32, Failed> {
        let bytes = u32::try_from(chain.writable.bytes()).unwrap_or(u32::MAX);
        let buffers = iovecs.over([&chain.writable]).map_err(|_| Status::IoError)?;
        if wait == Wait::Never {
            match buffers.read_cached_at(self.file.as_fd(), offset) {
                Ok(true) => return Ok(bytes),
                Ok(false) => return Err(Failed::WouldWait),
                // A file system without support for this, such as a tmpfs: everything is read as if it were
                // in memory.
                Err(error) if error.raw_os_error() == Some(libc::EOPNOTSUPP) => {}
                Err(_) => return Err(Status::IoError.into()),
            }
        }
        buffers.read_at(self.file.as_fd(), offset).map_err(|_| Status::IoError)?;
        Ok(bytes)
    }

    /// Returns the outcome of a failed change to the file. A block device without room has been cut short,
    /// and stays so.
    fn failed(self, error: &io::Error) -> Failed {
        if self.is_regular && lacks_room(error) { Failed::NoRoom } else { Status::IoError.into() }
    }

    /// Never waits for room: the kernel reports a failed write once, and the data is lost then.
    fn flush(self) -> Result<u32, Failed> {
        self.file.sync_data().map(|()| 0).map_err(|_| Status::IoError.into())
    }

    fn over(self, ranges: &[Range], act: impl Fn(&File, Range) -> io::Result<()>) -> Result<u32, Failed> {
        for range in ranges.iter().filter(|range| range.length > 0) {
            act(self.file, *range).map_err(|error| match error.raw_os_error() {
                Some(libc::EOPNOTSUPP) => Status::Unsupported.into(),
                _ => self.failed(&error),
            })?;
        }
        if self.write_through { self.flush() } else { Ok(0) }
    }
}

/// Returns true if the file can be written to once there is room.
fn lacks_room(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::ENOSPC | libc::EDQUOT))
}

fn punch(file: &File, range: Range) -> io::Result<()> {
    fallocate(file, FallocateMode::PunchHole, true, range.offset, range.length).map_err(io::Error::from)
}

/// Makes the range read as zeroes. Its space is kept unless it may be given back.
fn zero(file: &File, range: Range) -> io::Result<()> {
    if range.unmap {
        return punch(file, range);
    }
    let result = fallocate(file, FallocateMode::ZeroRange, true, range.offset, range.length);
    match result.map_err(io::Error::from) {
        // Some file systems do not support this (tmpfs does not); a hole reads the same.
        Err(error) if error.raw_os_error() == Some(libc::EOPNOTSUPP) => punch(file, range),
        other => other,
    }
}
