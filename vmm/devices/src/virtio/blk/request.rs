//! A request to the disk: read from guest memory and checked against the disk's limits, without touching the
//! disk.

use virtio_bindings::virtio_blk as spec;
use vm_memory::GuestAddress;

use super::{RANGE_SECTORS_MAX, RANGES_MAX, REQUEST_BYTES_MAX, SECTOR_BYTES};
use crate::virtio::chain::{Chain, ChainFault};

/// The outcome of a request, as the driver reads it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Status {
    Ok = spec::VIRTIO_BLK_S_OK as u8,
    IoError = spec::VIRTIO_BLK_S_IOERR as u8,
    Unsupported = spec::VIRTIO_BLK_S_UNSUPP as u8,
}

/// The limits of the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Limits {
    /// Whole sectors.
    pub(super) sectors: u64,
    pub(super) read_only: bool,
    /// The file is not a block device: it takes space on the node as it is written to, and its size is fixed.
    pub(super) is_regular: bool,
}

/// Bytes of the disk, all of them within its capacity.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Range {
    pub(super) offset: u64,
    pub(super) length: u64,
    /// The space may be given back.
    pub(super) unmap: bool,
}

/// A valid request for the disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Operation {
    /// Fill the remaining writable bytes from this offset.
    Read {
        offset: u64,
    },
    /// Write the remaining readable bytes to this offset.
    Write {
        offset: u64,
    },
    Flush,
    Identify,
    Discard(Vec<Range>),
    WriteZeroes(Vec<Range>),
}

/// A chain with room for an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Request {
    /// Address of the status byte.
    pub(super) status: GuestAddress,
    /// The action, or an immediate answer.
    pub(super) operation: Result<Operation, Status>,
}

/// Parses a request. Returns `None` if the chain has no place for a status byte, because then no answer is
/// possible.
pub(super) fn parse(chain: &mut Chain, fault: Option<ChainFault>, limits: Limits) -> Option<Request> {
    if fault == Some(ChainFault::Endless) {
        return None;
    }
    let status = chain.writable.take_last()?;
    let operation = match fault {
        Some(_) => Err(Status::IoError),
        None => operation(chain, limits),
    };
    Some(Request { status, operation })
}

fn operation(chain: &mut Chain, limits: Limits) -> Result<Operation, Status> {
    let mut header = [0; 16];
    chain.readable.take_front(&mut header).ok_or(Status::IoError)?;
    let (kind, sector) = (le32(&header[0..4]), le64(&header[8..16]));
    let span = |bytes: u64| span(sector, bytes, limits).ok_or(Status::IoError);
    match kind {
        spec::VIRTIO_BLK_T_IN => Ok(Operation::Read { offset: span(chain.writable.bytes())? }),
        spec::VIRTIO_BLK_T_OUT if limits.read_only => Err(Status::IoError),
        spec::VIRTIO_BLK_T_OUT => Ok(Operation::Write { offset: span(chain.readable.bytes())? }),
        spec::VIRTIO_BLK_T_FLUSH => Ok(Operation::Flush),
        spec::VIRTIO_BLK_T_GET_ID => Ok(Operation::Identify),
        spec::VIRTIO_BLK_T_DISCARD | spec::VIRTIO_BLK_T_WRITE_ZEROES if limits.read_only => {
            Err(Status::IoError)
        }
        spec::VIRTIO_BLK_T_DISCARD => ranges(chain, limits, 0).map(Operation::Discard),
        spec::VIRTIO_BLK_T_WRITE_ZEROES => {
            let flags = spec::VIRTIO_BLK_WRITE_ZEROES_FLAG_UNMAP;
            ranges(chain, limits, flags).map(Operation::WriteZeroes)
        }
        _ => Err(Status::Unsupported),
    }
}

/// Returns the byte offset of a transfer, if it has whole sectors within the disk.
fn span(sector: u64, bytes: u64, limits: Limits) -> Option<u64> {
    let end = sector.checked_add(bytes / SECTOR_BYTES)?;
    let fits = bytes.is_multiple_of(SECTOR_BYTES) && bytes <= REQUEST_BYTES_MAX && end <= limits.sectors;
    if fits { sector.checked_mul(SECTOR_BYTES) } else { None }
}

/// Parses the ranges of a DISCARD or WRITE_ZEROES (section 5.2.6): sector u64, count u32, flags u32 each.
fn ranges(chain: &mut Chain, limits: Limits, flags_known: u32) -> Result<Vec<Range>, Status> {
    const RANGE_BYTES: u64 = 16;
    let bytes = chain.readable.bytes();
    let count = bytes / RANGE_BYTES;
    if count == 0 || count > u64::from(RANGES_MAX) || !bytes.is_multiple_of(RANGE_BYTES) {
        return Err(Status::IoError);
    }
    let mut ranges = Vec::with_capacity(count as usize);
    for _ in 0..count {
        let mut range = [0; RANGE_BYTES as usize];
        chain.readable.take_front(&mut range).ok_or(Status::IoError)?;
        let (sector, sectors, flags) = (le64(&range[0..8]), le32(&range[8..12]), le32(&range[12..16]));
        if flags & !flags_known != 0 {
            return Err(Status::Unsupported);
        }
        let end = sector.checked_add(u64::from(sectors)).ok_or(Status::IoError)?;
        if sectors > RANGE_SECTORS_MAX || end > limits.sectors {
            return Err(Status::IoError);
        }
        ranges.push(Range {
            offset: sector * SECTOR_BYTES,
            length: u64::from(sectors) * SECTOR_BYTES,
            unmap: flags != 0,
        });
    }
    Ok(ranges)
}

fn le32(bytes: &[u8]) -> u32 {
    bytes.iter().rev().fold(0, |value, byte| value << 8 | u32::from(*byte))
}

fn le64(bytes: &[u8]) -> u64 {
    bytes.iter().rev().fold(0, |value, byte| value << 8 | u64::from(*byte))
}
