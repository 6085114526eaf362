//! virtio-blk: a disk whose content is a file (virtio 1.2, section 5.2).
//!
//! The device owns the open file and, between activation and reset, the queue. Never does it touch a byte
//! beyond the capacity that the driver read, nor write to a read-only disk.
//!
//! There is one queue. A request is one chain:
//!
//! ```text
//!   driver → device                          device → driver
//!   ┌──────────────────────────┬──────────┐  ┌──────────┬────────────┐
//!   │ type u32 │ 0 │ sector u64 │ data out │  │ data in  │ status u8  │
//!   └──────────────────────────┴──────────┘  └──────────┴────────────┘
//!     0 IN, 1 OUT, 4 FLUSH, 8 GET_ID,           ID or      0 OK, 1 IOERR,
//!     11 DISCARD, 13 WRITE_ZEROES               content    2 UNSUPP
//! ```
//!
//! `request` parses, `worker` takes requests on threads of its own, `carry_out` acts on the file, `device` is what the transport sees, `config`
//! what the driver reads of the disk, `full_disks` counts the disks that wait for room on the node, `size` follows block devices that grow, `unheard` says when a
//! driver hears of answers, `urgency` whether the thread takes the processor from the guest.

mod carry_out;
mod config;
mod device;
#[cfg(test)]
mod full_disk_tests;
mod full_disks;
mod request;
mod size;
mod snapshot;
#[cfg(test)]
mod tests;
mod unheard;
mod urgency;
#[cfg(test)]
mod waiting_tests;
mod worker;

pub use device::Blk;
pub use full_disks::FullDisks;
pub use snapshot::BlkSnapshot;

/// Bytes of a sector: the unit of all positions, whatever the disk's block size (section 5.2.4).
pub(crate) const SECTOR_BYTES: u64 = 512;

/// Buffers of data in one request; header and status take two more of the queue's 256.
pub(crate) const DATA_SEGMENTS_MAX: u32 = 254;

/// Bytes in one buffer of data, which the driver reads as SIZE_MAX.
pub(crate) const SEGMENT_BYTES_MAX: u32 = 128 * 1024;

/// Bytes in one request: bounds how long a single request keeps the thread.
pub(crate) const REQUEST_BYTES_MAX: u64 = DATA_SEGMENTS_MAX as u64 * SEGMENT_BYTES_MAX as u64;

/// Ranges in one DISCARD or WRITE_ZEROES request.
pub(crate) const RANGES_MAX: u32 = 32;

/// Sectors in one such range: 1 GiB, so that a file system works on it for a bounded time.
pub(crate) const RANGE_SECTORS_MAX: u32 = 1 << 21;
