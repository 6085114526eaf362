//! The guest's devices: virtio over MMIO, and a serial port for its console.
//!
//! A device has two parts. Its *front end* is the [`virtio::VirtioDevice`], and the transport drives it from
//! vCPU threads. A busy device also has a *back end* with its own thread: it owns the queues from activation
//! to reset. Devices get their files as open descriptors; nothing here opens a path. Everything read from
//! guest memory is hostile.

pub mod legacy;
pub mod virtio;
