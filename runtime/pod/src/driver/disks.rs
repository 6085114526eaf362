//! Block devices of the host that containers have: plugged into the machine as disks with their first
//! container, and unplugged with their last.

use std::path::PathBuf;

use proto_agent::agent::BlockDevice;
use runtime_spec::{ContainerSpec, Device};

use super::Driver;
use super::device_slots::Claim;
use crate::backend::{HostDisk, Plug};
use crate::error::{PodError, PodErrorKind};
use crate::live::Live;
use crate::record::{ContainerRecord, Disk};

impl Driver {
    /// Plugs the container's devices, and holds their slots: all or none.
    pub(super) async fn plug_disks(
        &mut self,
        live: &Live,
        spec: &ContainerSpec,
    ) -> Result<Vec<Disk>, PodError> {
        let mut disks = Vec::new();
        for (number, device) in spec.devices.iter().enumerate() {
            match self.plug_disk(live, number, device).await {
                Ok(disk) => disks.push(disk),
                Err(error) => {
                    self.release_disks(live, &disks).await;
                    return Err(error);
                }
            }
        }
        Ok(disks)
    }

    async fn plug_disk(&mut self, live: &Live, number: usize, device: &Device) -> Result<Disk, PodError> {
        let writable = device.permissions.contains('w');
        let opened = self.node.backends.disks.open(PathBuf::from(&device.host_path), writable).await;
        let disk = opened.map_err(|error| error.during("devices"))?;
        let other = HostDisk::key(disk.number, !writable);
        if self.disks.holds(&other) {
            let text = format!(
                "devices: {} is in another container of the pod, {}; all must write to it or none",
                device.host_path,
                if writable { "which only reads it" } else { "which writes to it" },
            );
            return Err(PodError::new(PodErrorKind::FailedPrecondition, text));
        }
        // What could not be unplugged with its last container.
        self.unplug_unused(live).await?;
        let key = HostDisk::key(disk.number, writable);
        let claim = self.disks.find(&key).ok_or_else(|| {
            let text = format!("devices: a pod takes {} block devices at once", self.disks.count());
            PodError::new(PodErrorKind::FailedPrecondition, text)
        })?;
        let slot = claim.slot();
        if !matches!(claim, Claim::Plugged(_)) {
            let plug = Plug::Disk { file: disk.file, read_only: !writable };
            live.call("plugging the block device", live.vm.plug(slot, plug)).await?;
        }
        self.disks.hold(slot, &key);
        Ok(Disk { number, key, slot })
    }

    /// Unplugs those that no other container has. The agent has let go of them; where it has not, they stay
    /// until a slot is needed, or the pod goes.
    pub(super) async fn release_disks(&mut self, live: &Live, disks: &[Disk]) {
        disks.iter().for_each(|disk| self.disks.release(disk.slot));
        if let Err(error) = self.unplug_unused(live).await {
            tracing::warn!(pod = self.record.id, error = error.chain(), "a block device stays plugged");
        }
    }

    async fn unplug_unused(&mut self, live: &Live) -> Result<(), PodError> {
        for slot in self.disks.unused() {
            live.call("unplugging a block device", live.vm.unplug(slot)).await?;
            self.disks.emptied(slot);
        }
        Ok(())
    }
}

/// What the agent is told of the container's disks.
pub(super) fn block_devices(record: &ContainerRecord) -> Vec<BlockDevice> {
    let one = |disk: &Disk| {
        let device = record.spec.devices.get(disk.number)?;
        Some(BlockDevice {
            slot: u32::from(disk.slot.number()),
            path: device.container_path.clone(),
            permissions: device.permissions.clone(),
            ..BlockDevice::default()
        })
    };
    record.disks.iter().filter_map(one).collect()
}
