//! Plug: fills an empty slot of the running machine.

use std::fs::File;
use std::os::unix::net::UnixListener;

use proto_vmm::{DeviceConfig, Refusal, Response, Slot};
use vmm_machine::Device;

use super::descriptors::Descriptors;
use super::{Answer, Control, refusal};
use crate::chain;

impl Control {
    pub(super) fn plug(
        &mut self,
        slot: Slot,
        device: &DeviceConfig,
        descriptors: &mut Descriptors,
    ) -> Answer {
        let device = self.device(device, descriptors)?;
        self.machine()?.plug(slot, device).map_err(|error| refusal(chain(&error)))?;
        Ok(Response::Plugged)
    }

    /// The device with the descriptors that it names.
    pub(super) fn device(
        &self,
        config: &DeviceConfig,
        descriptors: &mut Descriptors,
    ) -> Result<Device, Refusal> {
        Ok(match *config {
            DeviceConfig::Pmem { image } => Device::Pmem { image: File::from(descriptors.take(image)?) },
            DeviceConfig::Blk { image, read_only } => {
                Device::Blk { image: File::from(descriptors.take(image)?), read_only }
            }
            DeviceConfig::Fs { ref tag } => {
                let none = "there is no shared directory: the VMM was not started as root";
                let thread = self.share.clone().ok_or_else(|| refusal(none))?;
                Device::Fs { tag: tag.clone(), thread }
            }
            DeviceConfig::Net { tap, mac, mtu } => Device::Net { tap: descriptors.take(tap)?, mac, mtu },
            DeviceConfig::Vsock { listener, guest_cid } => Device::Vsock {
                listener: UnixListener::from(descriptors.take(listener)?),
                guest_cid,
                guest_stream: self.streams.sink(),
            },
            DeviceConfig::Rng => Device::Rng,
        })
    }
}
