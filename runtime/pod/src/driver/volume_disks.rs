//! Disk volumes kept by the guest itself: which of them are on disks of the VM, in which slots, and their
//! plugging.

use std::path::Path;

use proto_vmm::Slot;

use super::Driver;
use crate::backend::{DiskContent, DiskFound, FoundVolume};
use crate::error::{PodError, PodErrorKind};
use crate::live::Live;
use crate::record::{ContainerRecord, DiskPlace};

impl Driver {
    /// Decides the place of disk volumes not yet mounted by a container of this VM. A volume with files on
    /// the node stays there, and so does one without a free slot. A volume already on a disk must have a
    /// slot.
    pub(super) fn decide_disks(&mut self, found: &[(usize, FoundVolume)]) -> Result<(), PodError> {
        let disks = found.iter().filter_map(|(_, found)| match found {
            FoundVolume::Disk(volume) => Some(volume),
            _ => None,
        });
        // Existing disks first: their files are nowhere else.
        let (images, others): (Vec<_>, Vec<_>) = disks.partition(|disk| disk.content == DiskContent::Image);
        for volume in images.into_iter().chain(others) {
            if self.status.volume_disks.contains_key(&volume.directory) {
                continue;
            }
            let is_new = volume.content == DiskContent::Nothing;
            let may = self.status.disk_volumes || (!is_new && self.status.disk_images);
            let slot = self.free_volume_slot().filter(|_| may);
            let place = match (volume.content, slot) {
                (DiskContent::Image | DiskContent::Nothing, Some(slot)) => DiskPlace::Guest(slot),
                (DiskContent::Image, None) => return Err(self.no_slot(volume)),
                (DiskContent::Nothing | DiskContent::Files, _) => DiskPlace::Node,
            };
            if place == DiskPlace::Node && self.status.disk_volumes {
                let (pod, volume, content) = (&self.record.id, volume.directory.display(), volume.content);
                tracing::info!(pod, %volume, ?content, "a volume on disk is not put on a disk of the VM's, and stays on the node");
            }
            self.status.volume_disks.insert(volume.directory.clone(), place);
        }
        Ok(())
    }

    /// The slot of the volume in this directory, if it is on a disk of the VM's.
    pub(super) fn volume_slot(&self, directory: &Path) -> Option<Slot> {
        match self.status.volume_disks.get(directory) {
            Some(DiskPlace::Guest(slot)) => Some(*slot),
            _ => None,
        }
    }

    /// Plugs the not yet plugged disks of the container's volumes, until the VM ends.
    pub(super) async fn plug_volumes(
        &mut self,
        live: &Live,
        record: &ContainerRecord,
    ) -> Result<(), PodError> {
        for volume in &record.guest_volumes {
            let Some(slot) = volume.disk else { continue };
            self.plugs.plug_volume(live, &self.node.backends, slot, &volume.directory).await?;
        }
        Ok(())
    }

    fn free_volume_slot(&self) -> Option<Slot> {
        let taken =
            |slot: &Slot| self.status.volume_disks.values().any(|place| *place == DiskPlace::Guest(*slot));
        Slot::volumes().find(|slot| !taken(slot))
    }

    /// The files are on a disk not available to this VM, and no other place has them.
    fn no_slot(&self, volume: &DiskFound) -> PodError {
        let why = if self.status.disk_volumes || self.status.disk_images {
            format!("the pod has {} volumes on disks, and can have no more", Slot::volumes().count())
        } else {
            "the pod was started without such volumes".to_owned()
        };
        let text =
            format!("mounts: the files of {} are on a disk of a VM's: {why}", volume.directory.display());
        PodError::new(PodErrorKind::FailedPrecondition, text)
    }
}
