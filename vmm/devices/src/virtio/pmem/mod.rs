//! virtio-pmem: a file in guest-physical memory (virtio 1.2, section 5.19).
//!
//! The device owns the place of the region in guest-physical space and, between activation and reset, the
//! queue for the driver's flush requests. It never touches the region itself: the VM maps the file there,
//! read-only, and the guest reads it without this code.
//!
//! ```text
//!   driver → device                 device → driver
//!   ┌──────────────────┐            ┌──────────────────┐
//!   │ type u32: 0 FLUSH │           │ result u32: 0 OK │
//!   └──────────────────┘            └──────────────────┘
//! ```
//!
//! Because nothing can be written, every flush completes at once, on the vCPU's thread.

mod device;
mod request;
mod snapshot;
#[cfg(test)]
mod tests;

pub use device::Pmem;
pub use snapshot::PmemSnapshot;
