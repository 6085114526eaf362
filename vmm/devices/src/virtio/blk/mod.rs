//! virtio-blk: a disk with its content in a file (virtio 1.2, section 5.2).
//!
//! The device owns the open file and, between activation and reset, the queue. It never touches a byte beyond
//! the capacity read by the driver, and never writes to a read-only disk.
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
//! `request` parses, `worker` takes requests on its own threads, `carry_out` acts on the file, `device` is
//! the transport's view, `config` the driver's configuration space. `full_disks` counts the disks waiting for
//! room on the node, and `size` follows growing block devices. `unheard` decides when a driver is notified of
//! answers, and `urgency` whether the thread preempts the guest.

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

/// Bytes in one buffer of data. The driver reads this as SIZE_MAX.
pub(crate) const SEGMENT_BYTES_MAX: u32 = 128 * 1024;

/// Most bytes in one request. This limits the time of a single request on the thread.
pub(crate) const REQUEST_BYTES_MAX: u64 = DATA_SEGMENTS_MAX as u64 * SEGMENT_BYTES_MAX as u64;

/// Ranges in one DISCARD or WRITE_ZEROES request.
pub(crate) const RANGES_MAX: u32 = 32;

/// Sectors in one such range: 1 GiB, so a file system works on it for a limited time.
pub(crate) const RANGE_SECTORS_MAX: u32 = 1 << 21;
