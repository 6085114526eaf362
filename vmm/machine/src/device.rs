//! Which device goes into which slot, and how one is made from its descriptors.

use std::fs::File;
use std::os::fd::OwnedFd;
use std::os::unix::net::{UnixListener, UnixStream};

use proto_vmm::{Slot, SlotKind};
use vmm_devices::virtio::fs::ShareThread;

use crate::pmem::PmemError;

/// Takes a stream that the guest opened to a host port; `false` refuses it. Called on the vsock thread.
pub type GuestStream = Box<dyn Fn(u32, UnixStream) -> bool + Send + Sync>;

/// A device with its back end, ready to be plugged.
#[allow(missing_docs)]
pub enum Device {
    /// A file whose size is a multiple of 2 MiB, mapped read-only into the guest.
    Pmem { image: File },
    /// A disk.
    Blk { image: File, read_only: bool },
    /// A network interface on a tap.
    Net { tap: OwnedFd, mac: [u8; 6], mtu: u16 },
    /// Streams between host and guest.
    Vsock { listener: UnixListener, guest_cid: u32, guest_stream: GuestStream },
    /// Random numbers.
    Rng,
    /// A directory of the host, served by a thread that the jail has made.
    Fs { tag: String, thread: ShareThread },
}

impl Device {
    /// Its name, as in messages.
    pub fn kind(&self) -> &'static str {
        match self {
            Device::Pmem { .. } => "pmem",
            Device::Blk { .. } => "blk",
            Device::Net { .. } => "net",
            Device::Vsock { .. } => "vsock",
            Device::Rng => "rng",
            Device::Fs { .. } => "fs",
        }
    }

    /// Whether it may go into a slot of this kind.
    pub(crate) fn fits(&self, slot: SlotKind) -> bool {
        matches!(
            (self, slot),
            (Device::Pmem { .. }, SlotKind::Root | SlotKind::Pmem)
                | (Device::Blk { .. }, SlotKind::Blk)
                | (Device::Net { .. }, SlotKind::Net)
                | (Device::Vsock { .. }, SlotKind::Vsock)
                | (Device::Rng, SlotKind::Rng)
                | (Device::Fs { .. }, SlotKind::Fs)
        )
    }
}

impl std::fmt::Debug for Device {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.kind())
    }
}

/// A slot could not be filled or emptied.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs)]
pub enum PlugError {
    #[error("a {device} device does not fit slot {slot}")]
    Kind { device: &'static str, slot: Slot },
    #[error("slot {slot} is taken")]
    Taken { slot: Slot },
    #[error("slot {slot} is empty")]
    Empty { slot: Slot },
    #[error("slot {slot}")]
    Pmem { slot: Slot, source: PmemError },
    #[error("slot {slot}: cannot make the device")]
    Device { slot: Slot, source: Box<dyn std::error::Error + Send + Sync> },
}
