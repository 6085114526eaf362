//! Devices from before virtio: what a kernel needs for its first words.

pub mod serial;
