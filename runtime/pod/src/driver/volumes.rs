//! Volumes that the guest keeps itself: which of a container's mounts are such volumes, and what of them is on record.
//!
//! Where a volume in memory lies is decided once for each pod, with the first container that mounts it, and put on record
//! before anything is mounted: all its containers must find the same files, whatever becomes of the configuration.

use std::time::Duration;

use runtime_spec::{
    ContainerPlan, ContainerSpec, FileAccess, GuestVolumeContent, GuestVolumePlan, KubeletPath,
};

use super::Driver;
use crate::backend::MemoryFound;
use crate::blocking::within;
use crate::container::GUEST_PATHS;
use crate::error::{PodError, PodErrorKind};
use crate::live::Live;
use crate::record::{ContainerRecord, GuestVolume, MemoryPlace, PodStage};
use crate::volumes;
use crate::volumes::keeper::Keeper;

/// How long the places of a container's volumes may take to be looked at.
const LOOKED_WITHIN: Duration = Duration::from_secs(30);

impl Driver {
    /// Finds the mounts that are volumes which the guest keeps itself, and has the plan say so.
    pub(super) async fn place_volumes(
        &mut self,
        spec: &ContainerSpec,
        plan: &mut ContainerPlan,
    ) -> Result<Vec<GuestVolume>, PodError> {
        if !self.status.guest_volumes {
            return Ok(Vec::new());
        }
        let uid = &self.record.spec.uid;
        let of_kubelet = |(number, mount): (usize, &runtime_spec::Mount)| {
            Some((number, KubeletPath::of(uid, &mount.host_path)?))
        };
        let paths: Vec<_> = spec.host_mounts().filter_map(of_kubelet).collect();
        if paths.is_empty() {
            return Ok(Vec::new());
        }
        const DOING: &str = "mounts: looking at the volumes";
        let volumes = &self.node.backends.volumes;
        let finding = async { volumes.find_memory(paths).await.map_err(|error| error.during(DOING)) };
        let found = within(LOOKED_WITHIN, DOING, finding).await?;
        self.decide(&found).await?;
        let kept: Vec<_> = found
            .into_iter()
            .filter(|(_, found)| {
                self.status.memory_volumes.get(&found.directory) == Some(&MemoryPlace::Guest)
            })
            .collect();
        self.check_still_there(spec, &kept)?;
        let record = |(number, found): &(usize, MemoryFound)| GuestVolume {
            number: *number,
            directory: found.directory.clone(),
        };
        let on_record = kept.iter().map(record).collect();
        let planned = kept.into_iter().map(|(number, found)| memory_plan(number, found)).collect();
        plan.keep_in_guest(spec, planned, &GUEST_PATHS);
        Ok(on_record)
    }

    /// Decides where volumes lie that no container of the pod has mounted yet. A volume in which the node has files already
    /// stays there.
    async fn decide(&mut self, found: &[(usize, MemoryFound)]) -> Result<(), PodError> {
        let before = self.status.memory_volumes.clone();
        for (_, volume) in found {
            let place = if volume.holds_files { MemoryPlace::Node } else { MemoryPlace::Guest };
            self.status.memory_volumes.entry(volume.directory.clone()).or_insert(place);
        }
        if self.status.memory_volumes == before {
            return Ok(());
        }
        for (directory, place) in &self.status.memory_volumes {
            if *place == MemoryPlace::Node && !before.contains_key(directory) {
                let (pod, directory) = (&self.record.id, directory.display());
                tracing::info!(pod, %directory, "a volume in memory has files already, and stays on the node");
            }
        }
        let committed = self.commit_status().await;
        if committed.is_err() {
            self.status.memory_volumes = before;
        }
        committed
    }

    /// Refuses a mount of a volume whose files are in the guest, and which the node does not have any more: another place
    /// would show other files.
    fn check_still_there(&self, spec: &ContainerSpec, kept: &[(usize, MemoryFound)]) -> Result<(), PodError> {
        for (number, mount) in spec.host_mounts() {
            let Some(path) = KubeletPath::of(&self.record.spec.uid, &mount.host_path) else { continue };
            let directory = path.directory(runtime_spec::VolumePlugin::EmptyDir);
            let in_guest = directory.is_some_and(|directory| {
                self.status.memory_volumes.get(&directory) == Some(&MemoryPlace::Guest)
            });
            if in_guest && !kept.iter().any(|(kept, _)| *kept == number) {
                let text = format!(
                    "mounts: host path {}: the volume's files are in the pod's VM, and the node has the volume no more",
                    mount.host_path
                );
                return Err(PodError::new(PodErrorKind::FailedPrecondition, text));
            }
        }
        Ok(())
    }

    /// Has the volumes of a container that was made follow those of the node.
    pub(super) fn keep_volumes(&mut self, live: &Live, record: &ContainerRecord) {
        for volume in &record.guest_volumes {
            self.keeper(live).add_memory(volume.directory.clone());
        }
    }

    /// Has the volumes of a pod that was found again follow those of the node.
    pub(super) fn keep_found_volumes(&mut self, live: &Live) {
        if self.status.stage != PodStage::Ready {
            return;
        }
        let in_guest = self.status.memory_volumes.iter().filter(|(_, place)| **place == MemoryPlace::Guest);
        let directories: Vec<_> = in_guest.map(|(directory, _)| directory.clone()).collect();
        for directory in directories {
            self.keeper(live).add_memory(directory);
        }
    }

    fn keeper(&mut self, live: &Live) -> &Keeper {
        let (node, id) = (&self.node, &self.record.id);
        self.keeper.get_or_insert_with(|| Keeper::start(node.clone(), live.clone(), id.clone()))
    }
}

fn memory_plan(number: usize, found: MemoryFound) -> GuestVolumePlan {
    let (sub_path, sub_access) = match found.part {
        Some(part) => (part.sub_path, part.access),
        None => (String::new(), FileAccess::default()),
    };
    GuestVolumePlan {
        mount: number,
        source: String::new(),
        volume: volumes::name(&found.directory),
        sub_path,
        sub_access,
        mapped: false,
        content: GuestVolumeContent::Memory(found.volume),
    }
}
