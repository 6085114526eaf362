//! Devices from before virtio, for a kernel's first output.

pub mod serial;
