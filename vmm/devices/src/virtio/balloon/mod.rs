//! virtio-balloon, with free page reporting only (virtio 1.2, section 5.5.6.7): the guest's kernel reports
//! its free pages, and their memory goes back to the host.
//!
//! Between activation and reset, the device owns the queue of reports. It never gives back memory closed to
//! device writes, such as an image's, and it never asks the guest for memory. The balloon itself stays empty,
//! and buffers in the inflate and deflate queues stay there.
//!
//! A report is a chain of writable buffers, each a run of free pages; no byte is written to them. The driver
//! keeps the pages aside until the report is answered, and may find them with any content afterwards. A
//! report is served on the vCPU's thread, because the driver waits for the answer, and at most [`RUNS_MAX`]
//! runs of it are given back.

mod device;
mod snapshot;
#[cfg(test)]
mod tests;

pub use device::Balloon;
pub use snapshot::BalloonSnapshot;

/// Most runs given back from one report, the same as Linux's maximum (`PAGE_REPORTING_CAPACITY`). Each is a
/// system call, and the vCPU waits for all.
pub(crate) const RUNS_MAX: u16 = 32;

/// Most bytes given back from one report: the maximum of 32 runs on Linux, of 4 MiB each. This takes the
/// host's kernel some milliseconds.
pub(crate) const REPORT_BYTES_MAX: u32 = 128 << 20;
