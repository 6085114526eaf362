//! The devices plugged into a pod's VM for its containers: images in pmem slots, disks of the host and of
//! volumes in block slots.
//!
//! Only [`Plugs`] knows the content of each slot and its users; `slots.rs` is its table, without effects. A
//! restarted daemon fills the table from the records and compares it with the VMM's answer. Whether a
//! container may be created is not decided here.

mod slots;

use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::time::Duration;

use proto_vmm::{Device, Slot};
use runtime_spec::{ContainerSpec, Mount};

use self::slots::{Claim, SlotTable};
use crate::backend::{Backends, FoundImage, HostDisk, ImageLease, OpenedImage};
use crate::blocking::within;
use crate::container::mounts::IMAGE_VOLUME_MOUNT_FAILED;
use crate::error::{PodError, PodErrorKind};
use crate::live::Live;
use crate::record::{ContainerRecord, Disk, ImageVolume};

/// How long opening an image, or a block device of the node, may take.
const OPENED_WITHIN: Duration = Duration::from_secs(30);

/// The devices of one VM.
#[derive(Debug)]
pub(crate) struct Plugs {
    images: SlotTable,
    disks: SlotTable,
    /// Slots with disks of the pod's volumes. The driver knows each volume's slot.
    volumes: BTreeSet<Slot>,
    /// Leases on the images in the slots, including unused ones. An image left in the VM without a record,
    /// after a daemon was killed, has no lease: its files go with its removal, and the VM keeps its mapped
    /// pages.
    leases: BTreeMap<Slot, ImageLease>,
    /// Whether the tables list every slot filled in the VMM.
    is_compared: bool,
}

/// The slots used by one container.
#[derive(Clone, Debug)]
pub(crate) struct ContainerPlugs {
    /// The slot of the container's own image.
    pub(crate) slot: Slot,
    pub(crate) image_volumes: Vec<ImageVolume>,
    pub(crate) disks: Vec<Disk>,
}

impl ContainerPlugs {
    /// The slots on record.
    pub(crate) fn of(record: &ContainerRecord) -> ContainerPlugs {
        ContainerPlugs {
            slot: record.slot,
            image_volumes: record.image_volumes.clone(),
            disks: record.disks.clone(),
        }
    }
}

impl Plugs {
    /// The devices of a VM with nothing plugged yet.
    pub(crate) fn new() -> Plugs {
        Plugs {
            images: SlotTable::images(),
            disks: SlotTable::disks(),
            volumes: BTreeSet::new(),
            leases: BTreeMap::new(),
            is_compared: true,
        }
    }

    /// Plugs the container's missing devices, and counts it as a user: all or nothing.
    pub(crate) async fn plug(
        &mut self,
        live: &Live,
        backends: &Backends,
        image: &FoundImage,
        spec: &ContainerSpec,
    ) -> Result<ContainerPlugs, PodError> {
        if !self.is_compared {
            self.compare(live).await?;
        }
        let slot = self.plug_image(live, backends, image).await?;
        let mut plugs = ContainerPlugs { slot, image_volumes: Vec::new(), disks: Vec::new() };
        match self.plug_beside(live, backends, spec, &mut plugs).await {
            Ok(()) => Ok(plugs),
            Err(error) => {
                if let Err(stays) = self.release(Some(live), backends, &plugs).await {
                    tracing::warn!(error = stays.chain(), "a block device stays plugged");
                }
                Err(error)
            }
        }
    }

    /// Plugs the disk of the volume in this directory, unless it is plugged. The slot is the volume's alone.
    pub(crate) async fn plug_volume(
        &mut self,
        live: &Live,
        backends: &Backends,
        slot: Slot,
        directory: &Path,
    ) -> Result<(), PodError> {
        if !self.is_compared {
            self.compare(live).await?;
        }
        if self.volumes.contains(&slot) {
            return Ok(());
        }
        const DOING: &str = "mounts: opening the disk of a volume";
        let opening = async {
            let opened = backends.volumes.open_disk(directory.to_owned()).await;
            opened.map_err(|error| error.during(DOING))
        };
        let image = within(OPENED_WITHIN, DOING, opening).await?;
        let device = Device::Blk { image: image.into(), read_only: false };
        self.fill(live, "plugging the disk of a volume", slot, device).await?;
        self.volumes.insert(slot);
        Ok(())
    }

    /// Bytes of all images in the VM, including unused ones.
    pub(crate) fn image_bytes(&self) -> u64 {
        self.images.bytes()
    }

    /// Bytes of all images in the VM including this container's.
    pub(crate) fn image_bytes_with(
        &self,
        backends: &Backends,
        image: &FoundImage,
        spec: &ContainerSpec,
    ) -> u64 {
        // A missing volume image makes the container's creation fail later.
        let volumes: Vec<FoundImage> =
            spec.image_mounts().filter_map(|(_, mount)| backends.find_image(&mount.image).ok()).collect();
        let all = std::iter::once(image).chain(&volumes);
        self.images.bytes_with(all.map(|image| (image.id.as_str(), image.bytes)))
    }

    /// Takes leases for the images of a container on record, whether its VM is found again or not.
    pub(crate) fn lease_again(&mut self, backends: &Backends, record: &ContainerRecord) {
        let volumes = record.image_volumes.iter().map(|volume| (volume.slot, &volume.image_id));
        for (slot, image_id) in std::iter::once((record.slot, &record.image_id)).chain(volumes) {
            if !self.leases.contains_key(&slot)
                && let Some(lease) = backends.images.lease_again(image_id)
            {
                self.leases.insert(slot, lease);
            }
        }
    }

    /// Drops all leases: no process has the VM any more.
    pub(crate) fn vm_gone(&mut self) {
        self.leases.clear();
    }

    /// Counts a container on record as a user of its slots.
    pub(crate) fn hold(&mut self, record: &ContainerRecord) {
        self.images.hold(record.slot, &record.image_id);
        for volume in &record.image_volumes {
            self.images.hold(volume.slot, &volume.image_id);
        }
        for disk in &record.disks {
            self.disks.hold(disk.slot, &disk.key);
        }
    }

    /// Removes the container as a user, and unplugs unused disks and removed images. The agent has released
    /// them. If it has not, they stay until a slot is needed, or the pod goes.
    pub(crate) async fn release(
        &mut self,
        live: Option<&Live>,
        backends: &Backends,
        plugs: &ContainerPlugs,
    ) -> Result<(), PodError> {
        self.images.release(plugs.slot);
        plugs.image_volumes.iter().for_each(|volume| self.images.release(volume.slot));
        plugs.disks.iter().for_each(|disk| self.disks.release(disk.slot));
        match live {
            Some(live) => {
                self.unplug_removed_images(live, backends).await;
                self.unplug_unused_disks(live).await
            }
            None => Ok(()),
        }
    }

    /// Compares the table with the slots filled in the VMM. An extra device there, left by a killed or failed
    /// creation, counts as plugged and unused. Returns the slots missing in the VMM.
    pub(crate) async fn compare(&mut self, live: &Live) -> Result<Vec<Slot>, PodError> {
        // If the VM does not answer, the next plug asks again first.
        self.is_compared = false;
        let filled = live.call("asking the VM for its filled slots", live.vm.filled_slots()).await?;
        self.is_compared = true;
        let mut missing = self.images.compare(&filled);
        missing.extend(self.disks.compare(&filled));
        let filled: BTreeSet<Slot> = filled.iter().map(|filled| filled.slot).collect();
        self.volumes = Slot::volumes().filter(|slot| filled.contains(slot)).collect();
        Ok(missing)
    }

    /// Plugs image volumes and disks, and adds each to `plugs` once it is in.
    async fn plug_beside(
        &mut self,
        live: &Live,
        backends: &Backends,
        spec: &ContainerSpec,
        plugs: &mut ContainerPlugs,
    ) -> Result<(), PodError> {
        for (number, mount) in spec.image_mounts() {
            let volume = self.plug_image_volume(live, backends, number, mount).await.map_err(|error| {
                let text = format!("{IMAGE_VOLUME_MOUNT_FAILED}: {error}");
                error.reworded(text)
            })?;
            plugs.image_volumes.push(volume);
        }
        for (number, device) in spec.block_devices() {
            plugs.disks.push(self.plug_disk(live, backends, number, device).await?);
        }
        Ok(())
    }

    async fn plug_image_volume(
        &mut self,
        live: &Live,
        backends: &Backends,
        number: usize,
        mount: &Mount,
    ) -> Result<ImageVolume, PodError> {
        let image = backends.find_image(&mount.image)?;
        let slot = self.plug_image(live, backends, &image).await?;
        Ok(ImageVolume { number, image_id: image.id, slot })
    }

    async fn plug_image(
        &mut self,
        live: &Live,
        backends: &Backends,
        image: &FoundImage,
    ) -> Result<Slot, PodError> {
        let claim = self.images.find(&image.id).ok_or_else(|| {
            let text = format!("a pod takes {} images at once", self.images.count());
            PodError::new(PodErrorKind::FailedPrecondition, text)
        })?;
        let slot = claim.slot();
        if claim == Claim::Replace(slot) {
            // The agent let it go with its last container.
            self.empty(live, "unplugging an unused image", slot).await?;
        }
        if claim != Claim::Plugged(slot) {
            let doing = format!("opening the image {}", image.id);
            let opening =
                async { backends.images.open(&image.id).await.map_err(|error| error.during(doing.as_str())) };
            let OpenedImage { device, lease } = within(OPENED_WITHIN, &doing, opening).await?;
            // Before the plug: it may succeed although its answer is lost.
            self.leases.insert(slot, lease);
            if let Err(error) = self.fill(live, "plugging the image", slot, device).await {
                if self.is_compared && !self.images.is_filled(slot) {
                    self.leases.remove(&slot);
                }
                return Err(error);
            }
            self.images.hold(slot, &image.id);
            self.images.set_bytes(slot, image.bytes);
            return Ok(slot);
        }
        self.images.hold(slot, &image.id);
        Ok(slot)
    }

    async fn plug_disk(
        &mut self,
        live: &Live,
        backends: &Backends,
        number: usize,
        device: &runtime_spec::Device,
    ) -> Result<Disk, PodError> {
        let writable = device.permissions.contains('w');
        let opening = async {
            let opened = backends.disks.open(PathBuf::from(&device.host_path), writable).await;
            opened.map_err(|error| error.during("devices"))
        };
        let disk = within(OPENED_WITHIN, &format!("devices: {}", device.host_path), opening).await?;
        if self.disks.is_used(&HostDisk::key(disk.number, !writable)) {
            let text = format!(
                "devices: {} is in another container of the pod, {}; all must write to it or none",
                device.host_path,
                if writable { "which only reads it" } else { "which writes to it" },
            );
            return Err(PodError::new(PodErrorKind::FailedPrecondition, text));
        }
        // Disks left from their last container's failed unplug, or without a record.
        self.unplug_unused_disks(live).await?;
        let key = HostDisk::key(disk.number, writable);
        let claim = self.disks.find(&key).ok_or_else(|| {
            let text = format!("devices: a pod takes {} block devices at once", self.disks.count());
            PodError::new(PodErrorKind::FailedPrecondition, text)
        })?;
        let slot = claim.slot();
        if claim != Claim::Plugged(slot) {
            let device = Device::Blk { image: disk.file.into(), read_only: !writable };
            self.fill(live, "plugging the block device", slot, device).await?;
        }
        self.disks.hold(slot, &key);
        Ok(Disk { number, key, slot })
    }

    /// Fills an empty slot. After a failure the VMM is asked for its slots: it may have done the work
    /// although its answer was lost.
    async fn fill(
        &mut self,
        live: &Live,
        doing: &str,
        slot: Slot,
        device: Device<OwnedFd>,
    ) -> Result<(), PodError> {
        let plugged = live.call(doing, live.vm.plug(slot, device)).await;
        if plugged.is_err()
            && let Err(error) = self.compare(live).await
        {
            tracing::debug!(error = error.chain(), "a VMM does not report its slots after a failed plug");
        }
        plugged
    }

    /// Empties a slot. After a failure the VMM is asked for its slots, as in [`fill`](Self::fill): it refuses
    /// to empty an already empty slot.
    async fn empty(&mut self, live: &Live, doing: &str, slot: Slot) -> Result<(), PodError> {
        if let Err(error) = live.call(doing, live.vm.unplug(slot)).await {
            match self.compare(live).await {
                Ok(missing) if missing.contains(&slot) => {}
                _ => return Err(error),
            }
        }
        self.images.emptied(slot);
        self.disks.emptied(slot);
        self.leases.remove(&slot);
        Ok(())
    }

    /// Such an image can never be requested again, and its files take space while it is plugged.
    async fn unplug_removed_images(&mut self, live: &Live, backends: &Backends) {
        for (slot, image_id) in self.images.unused_with_names() {
            if backends.images.is_listed(&image_id) {
                continue;
            }
            if let Err(error) = self.empty(live, "unplugging a removed image", slot).await {
                tracing::debug!(image_id, error = error.chain(), "a removed image stays plugged");
            }
        }
    }

    async fn unplug_unused_disks(&mut self, live: &Live) -> Result<(), PodError> {
        for slot in self.disks.unused() {
            self.empty(live, "unplugging a block device", slot).await?;
        }
        Ok(())
    }
}
