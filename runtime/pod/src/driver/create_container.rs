//! Makes a container: admission, room in the VM, devices, record, mounts, agent. Each step is noted in a journal,
//! which undoes all of them where one fails.

use std::sync::Arc;

use proto_agent::agent::{self, BlockDevice, CreateContainerRequest};
use proto_agent::guest_path;
use runtime_spec::{ContainerSpec, Resolved, VmSize, resolve};

use super::Driver;
use super::step::Step;
use crate::backend::FoundImage;
use crate::clock;
use crate::container::mounts::{host_mounts, volume_error_first};
use crate::container::{Container, GUEST_PATHS, log, seccomp_file};
use crate::error::PodError;
use crate::journal::Journal;
use crate::live::Live;
use crate::plugs::ContainerPlugs;
use crate::record::{ContainerRecord, ContainerStage, ContainerStatus, Disk};
use crate::view::User;

/// A container that may be made.
struct NewContainer {
    id: String,
    spec: ContainerSpec,
    image: FoundImage,
    resolved: Resolved,
    /// The size that the VM needs with it.
    size: VmSize,
}

impl Driver {
    /// Makes a container and returns its id.
    pub(super) async fn create_container(&mut self, spec: ContainerSpec) -> Result<String, PodError> {
        self.containers.admit(&self.record.id, self.status.stage, &spec.name, spec.attempt)?;
        let image = self.node.backends.find_image(&spec.image)?;
        let id = clock::new_id();
        let mut resolved = resolve(&self.record.spec, &spec, &image.config, &id, &GUEST_PATHS)?;
        if let Some(path) = spec.seccomp_profile_path() {
            resolved.confine(&seccomp_file::read(path).await?)?;
        }
        let ledger = self.capacity.ledger(self.containers.limits_with(Some((&id, &spec.resources))));
        ledger.check("linux.resources.memory_limit_in_bytes")?;
        let live = self.live()?;
        let mut journal = Journal::new();
        let new = NewContainer { id: id.clone(), spec, image, resolved, size: ledger.size };
        match self.make(&live, new, &mut journal).await {
            Ok(container) => {
                self.node.roster.publish_container(container.entry());
                self.containers.insert(container);
                self.publish();
                Ok(id)
            }
            Err(error) => {
                self.take_back(journal).await;
                Err(error)
            }
        }
    }

    async fn make(
        &mut self,
        live: &Live,
        new: NewContainer,
        journal: &mut Journal<Step>,
    ) -> Result<Container, PodError> {
        let NewContainer { id, spec, image, resolved, size } = new;
        journal.note(Step::Pin);
        self.pin_with(live, Some((&id, &spec.resources))).await?;
        journal.note(Step::Grow(self.capacity.size()));
        self.grow(live, size).await?;
        // All or nothing, so there is nothing to undo before it is done.
        let plugs = self.plugs.plug(live, &self.node.backends, &image, &spec).await?;
        journal.note(Step::Plug(plugs.clone()));
        let ContainerPlugs { slot, image_volumes, disks } = plugs;
        let record = Arc::new(ContainerRecord {
            log_path: log::path(&self.record.spec, &spec),
            pod_id: self.record.id.clone(),
            image_id: image.id,
            image: image.config,
            created_at_ns: clock::now_ns(),
            id: id.clone(),
            spec,
            slot,
            image_volumes,
            disks,
        });
        journal.note(Step::Acks(id.clone()));
        journal.note(Step::Record(id.clone()));
        let mut status = ContainerStatus::creating();
        self.node.records.put_new_container(&record, &status).await?;
        journal.note(Step::Bind(record.clone()));
        self.bind_mounts(&record).await?;
        let output = log::open(&self.node.places, &record, true).await?;
        let log_path = log::shown_path(&self.node.places, &record);
        let request = request(&record, &resolved)?;
        journal.note(Step::Guest(id));
        let creating = live.agent.create_container(request);
        let answer = live.call("creating the container in the guest", creating).await;
        let answer = answer.map_err(volume_error_first)?;
        status.user = User { uid: answer.uid, gid: answer.gid, groups: answer.supplemental_groups };
        status.stage = ContainerStage::Created;
        self.node.records.put_container_status(&record.id, &status).await?;
        Ok(Container::new(record, status, &resolved, output, log_path))
    }
}

/// The request that has the agent build the container.
fn request(record: &ContainerRecord, resolved: &Resolved) -> Result<CreateContainerRequest, PodError> {
    let spec_json = serde_json::to_vec(&resolved.spec)
        .map_err(|error| PodError::internal("writing the container's OCI spec").because(error))?;
    Ok(CreateContainerRequest {
        container_id: record.id.clone(),
        spec_json,
        image_slot: u32::from(record.slot.number()),
        user: resolved.user.clone(),
        tty: record.spec.tty,
        stdin: record.spec.stdin,
        strict_groups: record.spec.security.supplemental_groups_strict,
        pid_target: record.spec.pid_target().unwrap_or_default().to_owned(),
        guest_devices: record.spec.security.privileged,
        shared_mounts: host_mounts(&record.spec).next().is_some(),
        image_volumes: image_volumes(record),
        block_devices: block_devices(record),
        cgroup_files: record.spec.resources.cgroup_files()?.into_iter().collect(),
        ..CreateContainerRequest::default()
    })
}

/// The container's image volumes, as the agent mounts them.
fn image_volumes(record: &ContainerRecord) -> Vec<agent::ImageVolume> {
    let volumes = record.image_volumes.iter();
    volumes
        .map(|volume| agent::ImageVolume {
            source: format!("{}/{}", guest_path::IMAGE_VOLUMES, volume.number),
            slot: u32::from(volume.slot.number()),
            sub_path: record.spec.mounts[volume.number].image_sub_path.clone(),
            ..agent::ImageVolume::default()
        })
        .collect()
}

/// The container's disks, as the agent makes their nodes.
fn block_devices(record: &ContainerRecord) -> Vec<BlockDevice> {
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
