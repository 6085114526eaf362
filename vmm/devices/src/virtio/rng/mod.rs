//! virtio-rng: random bytes from the host (virtio 1.2, section 5.4).
//!
//! The device owns, between activation and reset, the queue. Never does it give the guest bytes that did not
//! come from the kernel's generator.
//!
//! A request is a chain of writable buffers; the answer is as many random bytes in them as the used
//! length says. A guest asks for little and seldom, so it is served on the vCPU's thread, and at most
//! `REQUEST_BYTES_MAX` at a time.

mod device;
mod request;
mod snapshot;
#[cfg(test)]
mod tests;

pub use device::Rng;
pub use snapshot::RngSnapshot;

/// Bytes given for one chain, some 0.2 ms of work; a driver that offers more gets less, as it may.
pub(crate) const REQUEST_BYTES_MAX: u32 = 64 * 1024;
