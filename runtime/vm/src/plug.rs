//! Devices to plug, and how they travel: a configuration in the message, descriptors beside it.

use std::fs::File;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixListener;

use proto_vmm::{DeviceConfig, FdIndex};

/// A device with its back end.
#[derive(Debug)]
pub enum Plug {
    /// An image, opened for reading; its size is a multiple of 2 MiB.
    Pmem(File),
    /// A disk; its size is a multiple of 512 bytes.
    Blk {
        /// The file or block device, opened for writing unless `read_only`.
        image: File,
        /// The guest may not write.
        read_only: bool,
    },
    /// A network interface.
    Net {
        /// A tap with a vnet header of 12 bytes.
        tap: OwnedFd,
        /// Ethernet address in the guest.
        mac: [u8; 6],
        /// Largest packet in bytes.
        mtu: u16,
    },
    /// The directory that the VMM was started in.
    Fs {
        /// The name that the guest mounts it by, 1 to 36 bytes.
        tag: String,
    },
}

/// Descriptors of one message, in order.
#[derive(Debug, Default)]
pub(crate) struct Luggage(Vec<OwnedFd>);

impl Luggage {
    /// Adds a descriptor; gives its place.
    pub(crate) fn add(&mut self, fd: impl Into<OwnedFd>) -> FdIndex {
        self.0.push(fd.into());
        // More than FDS_MAX are refused when the packet is sent.
        FdIndex(u8::try_from(self.0.len() - 1).unwrap_or(u8::MAX))
    }

    pub(crate) fn add_plug(&mut self, plug: Plug) -> DeviceConfig {
        match plug {
            Plug::Pmem(image) => DeviceConfig::Pmem { image: self.add(image) },
            Plug::Blk { image, read_only } => DeviceConfig::Blk { image: self.add(image), read_only },
            Plug::Net { tap, mac, mtu } => DeviceConfig::Net { tap: self.add(tap), mac, mtu },
            Plug::Fs { tag } => DeviceConfig::Fs { tag },
        }
    }

    pub(crate) fn add_vsock(&mut self, listener: UnixListener, guest_cid: u32) -> DeviceConfig {
        DeviceConfig::Vsock { listener: self.add(listener), guest_cid }
    }

    pub(crate) fn fds(&self) -> &[OwnedFd] {
        &self.0
    }
}
