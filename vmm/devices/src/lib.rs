//! The devices that a guest sees: virtio over MMIO, and a serial port for its console.
//!
//! A device is two things: its *front end*, the [`virtio::VirtioDevice`] that the transport drives
//! from vCPU threads, and, for the busy ones, a *back end* thread of its own that owns the queues from
//! activation to reset. Devices get their files as open descriptors; nothing here opens a path.
//! Everything read from guest memory is hostile.

pub mod legacy;
pub mod virtio;
