//! virtio-balloon, of which only free page reporting is offered (virtio 1.2, section 5.5.6.7): the guest's kernel says
//! which of its pages are free, and their memory goes back to the host.
//!
//! The device owns, between activation and reset, the queue of reports. Never does it give back memory that devices may
//! not write to, such as an image's, and never does it ask the guest for memory: the balloon itself stays empty, and what
//! a driver puts into the queues to fill and to empty it stays there.
//!
//! A report is a chain of writable buffers, each a run of free pages; no byte is written to them. The driver keeps the pages
//! aside until the report is answered, and may find them with any content afterwards. A report is served on the vCPU's
//! thread, since the driver waits for the answer, and at most [`RUNS_MAX`] runs of it are given back.

mod device;
mod snapshot;
#[cfg(test)]
mod tests;

pub use device::Balloon;
pub use snapshot::BalloonSnapshot;

/// Runs of one report that are given back: what Linux sends at most (`PAGE_REPORTING_CAPACITY`). Each is a system call, and
/// the vCPU waits for all.
pub(crate) const RUNS_MAX: u16 = 32;

/// Bytes of one report that are given back: as many as 32 runs of Linux have at most, of 4 MiB each. The host's kernel
/// takes some milliseconds for that.
pub(crate) const REPORT_BYTES_MAX: u32 = 128 << 20;
