//! Volumes kept by the guest itself: which of a container's mounts are such volumes, and their record.
//!
//! The place of a volume in memory, or on disk (`volume_disks.rs`), is decided once for each pod, with its
//! first container that mounts it. The decision is recorded before anything is mounted: all the pod's
//! containers must find the same files, even after a change of the configuration. A copy of a published
//! volume shows the node's content, so each of its mounts is decided by itself.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::path::Path;
use std::time::Duration;

use proto_vmm::Slot;
use runtime_spec::{
    ContainerPlan, ContainerSpec, DiskVolume, FileAccess, GuestVolumeContent, GuestVolumePlan, KubeletPath,
    VolumePlugin,
};

use super::Driver;
use crate::backend::{DiskFound, FoundVolume, MemoryFound, PublishedFound};
use crate::blocking::within;
use crate::container::GUEST_PATHS;
use crate::error::{PodError, PodErrorKind};
use crate::live::Live;
use crate::record::{ContainerRecord, GuestVolume, MemoryPlace, PodStage, PodStatus};
use crate::volumes;
use crate::volumes::keeper::{self, Keeper};
use crate::volumes::part::VolumePart;
use crate::volumes::published::{PART, Snapshot};

/// How long finding a container's volumes may take.
const LOOKED_WITHIN: Duration = Duration::from_secs(30);

/// Most memory for copies of published volumes in one guest, in bytes: a part of the memory left by a pod's
/// overhead. For a moment it may be twice as much.
const COPIED_BYTES_MAX: u64 = 16 << 20;

/// The volumes of a container kept by the guest.
#[derive(Debug, Default)]
pub(super) struct PlacedVolumes {
    pub(super) on_record: Vec<GuestVolume>,
    /// Versions of published volumes, by the numbers of their mounts.
    snapshots: BTreeMap<usize, Snapshot>,
}

impl Driver {
    /// Finds the mounts of volumes kept by the guest itself, and marks them in the plan.
    pub(super) async fn place_volumes(
        &mut self,
        spec: &ContainerSpec,
        plan: &mut ContainerPlan,
    ) -> Result<PlacedVolumes, PodError> {
        let mut placed = PlacedVolumes::default();
        let uid = &self.record.spec.uid;
        let of_kubelet = |(number, mount): (usize, &runtime_spec::Mount)| {
            Some((number, KubeletPath::of(uid, &mount.host_path)?))
        };
        let paths: Vec<_> = spec.host_mounts().filter_map(of_kubelet).collect();
        if paths.is_empty() {
            return Ok(placed);
        }
        const DOING: &str = "mounts: looking at the volumes";
        let volumes = &self.node.backends.volumes;
        let finding = async {
            let finding = match self.status.guest_volumes {
                true => volumes.find(paths),
                // Others are shared, but a disk's files can be seen in a VM alone.
                false => volumes.find_disks(paths),
            };
            finding.await.map_err(|error| error.during(DOING))
        };
        let found = within(LOOKED_WITHIN, DOING, finding).await?;
        let before = self.status.clone();
        self.decide_disks(&found)
            .inspect_err(|_| self.status.volume_disks.clone_from(&before.volume_disks))?;
        let memory = found.iter().filter_map(|(_, found)| match found {
            FoundVolume::Memory(memory) => Some(memory),
            _ => None,
        });
        self.decide_memory(&memory.collect::<Vec<_>>());
        self.commit_decisions(before).await?;
        let mut planned = Vec::new();
        for (number, found) in found {
            match found {
                FoundVolume::Memory(memory) if self.is_in_guest(&memory.directory) => {
                    placed.on_record.push(GuestVolume::memory(number, memory.directory.clone()));
                    planned.push(memory_plan(number, memory));
                }
                FoundVolume::Memory(_) => {}
                FoundVolume::Disk(disk) => {
                    let Some(slot) = self.volume_slot(&disk.directory) else { continue };
                    placed.on_record.push(GuestVolume::disk(number, disk.directory.clone(), slot));
                    planned.push(disk_plan(number, disk, slot));
                }
                FoundVolume::Published(published) => {
                    let read_only = spec.mounts.get(number).is_some_and(|mount| mount.readonly);
                    planned.extend(self.place_copy(
                        number,
                        read_only,
                        published,
                        &plan.container_id,
                        &mut placed,
                    ));
                }
            }
        }
        self.check_still_there(spec, &placed.on_record)?;
        plan.keep_in_guest(spec, planned, &GUEST_PATHS);
        Ok(placed)
    }

    /// Places a copy of a published volume in the guest, if it can be one.
    fn place_copy(
        &self,
        number: usize,
        read_only: bool,
        found: PublishedFound,
        container_id: &str,
        placed: &mut PlacedVolumes,
    ) -> Option<GuestVolumePlan> {
        let PublishedFound { place, content } = found;
        let copy = content.and_then(|snapshot| {
            // The node would see the container's writes.
            if !read_only {
                return Err("it is mounted to be written to");
            }
            let part = snapshot.version.is_none();
            let record = GuestVolume::published(number, place.clone(), snapshot.bytes, part);
            let others = self.copied_beside(&record.name(container_id), placed);
            if others + snapshot.bytes > COPIED_BYTES_MAX {
                return Err("the pod has as many bytes of volumes as are copied");
            }
            Ok((snapshot, record))
        });
        let (snapshot, record) = match copy {
            Ok(copy) => copy,
            Err(why) => {
                let (pod, volume) = (&self.record.id, place.display());
                tracing::info!(pod, %volume, why, "a published volume is not copied, and stays on the node");
                return None;
            }
        };
        let planned = GuestVolumePlan {
            mount: number,
            source: String::new(),
            volume: record.name(container_id),
            sub_path: if snapshot.is_file { PART.to_owned() } else { String::new() },
            sub_access: FileAccess::default(),
            mapped: false,
            content: GuestVolumeContent::Published,
        };
        placed.snapshots.insert(number, snapshot);
        placed.on_record.push(record);
        Some(planned)
    }

    /// Memory for copies, without that of the volume with this name in the guest: those of the containers on
    /// record, and of the current one. Containers share everything except parts of volumes.
    fn copied_beside(&self, name: &str, placed: &PlacedVolumes) -> u64 {
        let known = self.containers.ids();
        let containers = known.iter().filter_map(|id| self.containers.get(id));
        let of_containers = containers.flat_map(|container| {
            let id = container.record.id.as_str();
            container.record.guest_volumes.iter().map(move |volume| (volume.name(id), volume.copied_bytes))
        });
        let of_new = placed.on_record.iter().map(|volume| (volume.name(""), volume.copied_bytes));
        let mut bytes: BTreeMap<_, _> = of_containers.chain(of_new).collect();
        bytes.remove(name);
        bytes.values().sum()
    }

    /// Decides the place of memory volumes not yet mounted by a container of the pod. A volume with files on
    /// the node stays there.
    fn decide_memory(&mut self, found: &[&MemoryFound]) {
        for volume in found {
            let place = if volume.holds_files { MemoryPlace::Node } else { MemoryPlace::Guest };
            if let Entry::Vacant(vacant) = self.status.memory_volumes.entry(volume.directory.clone()) {
                vacant.insert(place);
                if place == MemoryPlace::Node {
                    let (pod, directory) = (&self.record.id, volume.directory.display());
                    tracing::info!(pod, %directory, "a volume in memory has files already, and stays on the node");
                }
            }
        }
    }

    /// Records newly decided places of volumes. If this fails, the decision is withdrawn.
    async fn commit_decisions(&mut self, before: PodStatus) -> Result<(), PodError> {
        let PodStatus { memory_volumes, volume_disks, .. } = before;
        if self.status.memory_volumes == memory_volumes && self.status.volume_disks == volume_disks {
            return Ok(());
        }
        let committed = self.commit_status().await;
        if committed.is_err() {
            self.status.memory_volumes = memory_volumes;
            self.status.volume_disks = volume_disks;
        }
        committed
    }

    fn is_in_guest(&self, directory: &Path) -> bool {
        self.status.memory_volumes.get(directory) == Some(&MemoryPlace::Guest)
    }

    /// Refuses a mount of a volume with its files in the guest if the node has lost it: another place would
    /// show other files.
    fn check_still_there(&self, spec: &ContainerSpec, kept: &[GuestVolume]) -> Result<(), PodError> {
        for (number, mount) in spec.host_mounts() {
            let Some(path) = KubeletPath::of(&self.record.spec.uid, &mount.host_path) else { continue };
            let directory = path.directory(VolumePlugin::EmptyDir);
            let in_guest = directory.is_some_and(|directory| {
                self.is_in_guest(&directory) || self.volume_slot(&directory).is_some()
            });
            if in_guest && !kept.iter().any(|kept| kept.number == number) {
                let text = format!(
                    "mounts: host path {}: the volume's files are in the pod's VM, and the node has the volume no more",
                    mount.host_path
                );
                return Err(PodError::new(PodErrorKind::FailedPrecondition, text));
            }
        }
        Ok(())
    }

    /// Sends the guest the versions of published volumes mounted by the container being created.
    pub(super) async fn publish_volumes(
        &mut self,
        live: &Live,
        record: &ContainerRecord,
        mut placed: PlacedVolumes,
    ) -> Result<(), PodError> {
        for volume in &record.guest_volumes {
            let Some(snapshot) = placed.snapshots.remove(&volume.number) else { continue };
            let container = volume.part.then(|| record.id.clone());
            let follow = (!volume.part).then(|| volume.directory.clone());
            let version = keeper::version_of(volume.name(&record.id), container, snapshot);
            self.keeper(live).publish(version, follow).await?;
        }
        Ok(())
    }

    /// Makes the memory volumes of a new container follow those of the node.
    pub(super) fn keep_volumes(&mut self, live: &Live, record: &ContainerRecord) {
        for volume in record.guest_volumes.iter().filter(|volume| volume.is_memory()) {
            self.keeper(live).add_memory(volume.directory.clone());
        }
    }

    /// Makes the volumes of a recovered pod follow those of the node.
    pub(super) fn keep_found_volumes(&mut self, live: &Live) {
        if self.status.stage != PodStage::Ready {
            return;
        }
        let in_guest = self.status.memory_volumes.iter().filter(|(_, place)| **place == MemoryPlace::Guest);
        let directories: Vec<_> = in_guest.map(|(directory, _)| directory.clone()).collect();
        for directory in directories {
            self.keeper(live).add_memory(directory);
        }
        for id in self.containers.ids() {
            let Some(record) = self.containers.get(&id).map(|container| container.record.clone()) else {
                continue;
            };
            for volume in record.guest_volumes.iter().filter(|volume| volume.published && !volume.part) {
                self.keeper(live).add_published(volume.directory.clone());
            }
        }
    }

    fn keeper(&mut self, live: &Live) -> &Keeper {
        let (node, id) = (&self.node, &self.record.id);
        self.keeper.get_or_insert_with(|| Keeper::start(node.clone(), live.clone(), id.clone()))
    }
}

fn memory_plan(number: usize, found: MemoryFound) -> GuestVolumePlan {
    plan(number, &found.directory, found.part, GuestVolumeContent::Memory(found.volume))
}

fn disk_plan(number: usize, found: DiskFound, slot: Slot) -> GuestVolumePlan {
    let disk = DiskVolume { slot: slot.number(), access: found.access };
    plan(number, &found.directory, found.part, GuestVolumeContent::Disk(disk))
}

fn plan(
    number: usize,
    directory: &Path,
    part: Option<VolumePart>,
    content: GuestVolumeContent,
) -> GuestVolumePlan {
    let (sub_path, sub_access) = match part {
        Some(part) => (part.sub_path, part.access),
        None => (String::new(), FileAccess::default()),
    };
    GuestVolumePlan {
        mount: number,
        source: String::new(),
        volume: volumes::name(directory),
        sub_path,
        sub_access,
        mapped: false,
        content,
    }
}
