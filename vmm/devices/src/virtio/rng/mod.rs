//! virtio-rng: random bytes from the host (virtio 1.2, section 5.4).
//!
//! The device owns, between activation and reset, the queue. It gives the guest only bytes from the kernel's
//! generator.
//!
//! A request is a chain of writable buffers. The answer is random bytes in them, as many as the used length.
//! A guest asks for little and seldom, so it is served on the vCPU's thread, with at most `REQUEST_BYTES_MAX`
//! at a time.

mod device;
mod request;
mod snapshot;
#[cfg(test)]
mod tests;

pub use device::Rng;
pub use snapshot::RngSnapshot;

/// Most bytes for one chain, some 0.2 ms of work. A driver with larger buffers gets less; the standard allows
/// this.
pub(crate) const REQUEST_BYTES_MAX: u32 = 64 * 1024;
