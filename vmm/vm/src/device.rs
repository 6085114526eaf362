//! Makes a device from its description and descriptor. The slot table (`proto_vmm::Slot`) has the kind of
//! each slot, and docs/adding-a-device.md explains how to add a device.

use std::error::Error;
use std::fs::File;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixListener;

use kvm_ioctls::VmFd;
use proto_vmm::{Device, DeviceKind, ImagePart, Slot};
use vmm_devices::virtio::VirtioDevice;
use vmm_devices::virtio::balloon::Balloon;
use vmm_devices::virtio::blk::{Blk, FullDisks};
use vmm_devices::virtio::fs::{Fs, ShareLink};
use vmm_devices::virtio::net::Net;
use vmm_devices::virtio::pmem::Pmem;
use vmm_devices::virtio::rng::Rng;
use vmm_devices::virtio::vsock::{GuestStream, HostPorts, Vsock};

use crate::image_map;
use crate::pmem::{PmemError, PmemWindows};

/// The parts of the VMM used by devices besides their files.
#[derive(Clone)]
pub struct Backends {
    /// Receives the guest's streams to its open host ports.
    pub guest_stream: GuestStream,
    /// The share of the pod's directory, in its own process, if there is one.
    pub share: Option<ShareLink>,
    /// Counts the disks waiting for space on the node.
    pub full_disks: FullDisks,
}
impl std::fmt::Debug for Backends {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Backends").field("share", &self.share).finish_non_exhaustive()
    }
}

/// A slot could not be filled or emptied.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs)]
pub enum PlugError {
    #[error("a {device} device does not fit slot {slot}")]
    Kind { device: DeviceKind, slot: Slot },
    #[error("slot {slot} is taken")]
    Taken { slot: Slot },
    #[error("slot {slot} is empty")]
    Empty { slot: Slot },
    #[error("slot {slot}: the VMM has no shared directory, since it was not started as root")]
    NoShare { slot: Slot },
    #[error("slot {slot}")]
    Pmem { slot: Slot, source: PmemError },
    #[error("slot {slot}: cannot make the device")]
    Device { slot: Slot, source: Box<dyn Error + Send + Sync> },
}

impl Backends {
    /// Makes the device for `slot`, and an image's window.
    pub(crate) fn make(
        &self,
        vm: &VmFd,
        windows: &mut PmemWindows,
        slot: Slot,
        device: Device<OwnedFd>,
    ) -> Result<Box<dyn VirtioDevice>, PlugError> {
        Ok(match device {
            Device::Pmem { image } => {
                let opened = image_map::whole(File::from(image))
                    .map_err(PmemError::from)
                    .and_then(|parts| windows.open(vm, slot, &parts));
                let (base, length) = opened.map_err(|source| PlugError::Pmem { slot, source })?;
                Box::new(Pmem::new(base, length))
            }
            Device::Layered { parts } => {
                let part = |part: ImagePart<OwnedFd>| {
                    let ImagePart { file, offset, length } = part;
                    ImagePart { file: File::from(file), offset, length }
                };
                let parts: Vec<_> = parts.into_iter().map(part).collect();
                let opened = windows.open(vm, slot, &parts);
                let (base, length) = opened.map_err(|source| PlugError::Pmem { slot, source })?;
                Box::new(Pmem::new(base, length))
            }
            Device::Blk { image, read_only } => {
                Box::new(Blk::new(File::from(image), read_only, &self.full_disks).map_err(failed(slot))?)
            }
            Device::Net { tap, mac, mtu } => Box::new(Net::new(tap, mac, mtu).map_err(failed(slot))?),
            Device::Vsock { listener, guest_cid, host_ports, program_port } => {
                let host_ports = HostPorts { agent: host_ports, programs: program_port };
                let (listener, guest_stream) = (UnixListener::from(listener), self.guest_stream.clone());
                Box::new(Vsock::new(guest_cid, listener, host_ports, guest_stream).map_err(failed(slot))?)
            }
            Device::Rng => Box::new(Rng::new()),
            Device::Balloon => Box::new(Balloon::new()),
            Device::Fs { tag } => {
                let link = self.share.clone().ok_or(PlugError::NoShare { slot })?;
                Box::new(Fs::new(&tag, link).map_err(failed(slot))?)
            }
        })
    }
}

/// Returns the error for a device that cannot be made.
pub(crate) fn failed<E: Into<Box<dyn Error + Send + Sync>>>(slot: Slot) -> impl FnOnce(E) -> PlugError {
    move |source| PlugError::Device { slot, source: source.into() }
}
