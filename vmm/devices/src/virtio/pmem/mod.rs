//! virtio-pmem: a file in guest-physical memory (virtio 1.2, section 5.19).
//!
//! The device owns the place of the region in guest-physical space and, between activation and reset, the queue
//! on which the driver asks for flushes. Never does it touch the region itself: the VM maps the file there,
//! read-only, and the guest reads it without coming by here.
//!
//! ```text
//!   driver → device                 device → driver
//!   ┌──────────────────┐            ┌──────────────────┐
//!   │ type u32: 0 FLUSH │           │ result u32: 0 OK │
//!   └──────────────────┘            └──────────────────┘
//! ```
//!
//! Since nothing can be written, every flush is done as soon as it is asked for: on the vCPU's thread.

mod device;
mod request;
mod snapshot;
#[cfg(test)]
mod tests;

pub use device::Pmem;
pub use snapshot::PmemSnapshot;
