//! Makes a container: admission, image slot, agent; each step with its undo.

use std::sync::Arc;

use proto_agent::agent::CreateContainerRequest;
use proto_vmm::Slot;
use runtime_spec::{ContainerSpec, Resolved, resolve};

use super::device_slots::Claim;
use super::{Driver, disks, mounts};
use crate::backend::{FoundImage, Plug};
use crate::clock;
use crate::container::admission::{self, Known};
use crate::container::{Container, GUEST_PATHS, log, seccomp_file};
use crate::error::{PodError, PodErrorKind};
use crate::live::Live;
use crate::record::{ContainerRecord, ContainerStage, ContainerStatus};
use crate::view::User;

impl Driver {
    /// Makes a container and answers its id.
    pub(super) async fn create_container(&mut self, spec: ContainerSpec) -> Result<String, PodError> {
        let known = self.containers.values().map(|container| Known {
            id: &container.record.id,
            name: &container.record.spec.name,
            attempt: container.record.spec.attempt,
        });
        admission::create(&self.record.id, self.status.stage, &spec.name, spec.attempt, known)?;
        let image = self.find_image(&spec.image)?;
        let id = clock::new_id();
        let mut resolved = resolve(&self.record.spec, &spec, &image.config, &id, &GUEST_PATHS)?;
        if let Some(path) = spec.seccomp_profile_path() {
            resolved.confine(&seccomp_file::read(path).await?)?;
        }
        let ledger = self.ledger_with(Some((&id, &spec.resources)));
        ledger.check("linux.resources.memory_limit_in_bytes")?;
        let live = self.live()?;
        let before = self.vm_size();
        self.pin_with(&live, Some((&id, &spec.resources))).await?;
        let made = match self.grow(&live, ledger.size).await {
            Ok(()) => self.make(&live, id, spec, image, &resolved).await,
            Err(error) => Err(error),
        };
        if made.is_err() {
            self.shrink(&live, before).await;
            self.pin().await;
        }
        made
    }

    /// Makes it in a machine that is large enough.
    async fn make(
        &mut self,
        live: &Live,
        id: String,
        spec: ContainerSpec,
        image: FoundImage,
        resolved: &Resolved,
    ) -> Result<String, PodError> {
        let slot = self.plug_image(live, &image).await?;
        self.slots.hold(slot, &image.id);
        let image_volumes = match self.plug_volumes(live, &spec).await {
            Ok(volumes) => volumes,
            Err(error) => {
                self.slots.release(slot);
                return Err(error);
            }
        };
        let disks = match self.plug_disks(live, &spec).await {
            Ok(disks) => disks,
            Err(error) => {
                self.slots.release(slot);
                self.release_volumes(&image_volumes);
                return Err(error);
            }
        };
        let record = Arc::new(ContainerRecord {
            log_path: log::path(&self.record.spec, &spec),
            pod_id: self.record.id.clone(),
            image_id: image.id,
            image: image.config,
            created_at_ns: clock::now_ns(),
            id,
            spec,
            slot,
            image_volumes,
            disks,
        });
        let built = self.build(live, &record, resolved).await;
        if built.is_err() {
            self.slots.release(slot);
            self.release_volumes(&record.image_volumes);
            self.release_disks(live, &record.disks).await;
        }
        let container = built?;
        self.node.roster.publish_container(container.entry());
        self.containers.insert(record.id.clone(), container);
        self.publish();
        Ok(record.id.clone())
    }

    /// The image of this name.
    pub(super) fn find_image(&self, name: &str) -> Result<FoundImage, PodError> {
        self.node.backends.images.find(name).ok_or_else(|| {
            let text = format!("image {name:?} is not on this node");
            PodError::new(PodErrorKind::NotFound, text)
        })
    }

    /// Plugs the image where it is not yet. The slot is not held yet.
    pub(super) async fn plug_image(&mut self, live: &Live, image: &FoundImage) -> Result<Slot, PodError> {
        let claim = self.slots.find(&image.id).ok_or_else(|| {
            let text = format!("a pod takes {} images at once", Slot::pmems().count());
            PodError::new(PodErrorKind::FailedPrecondition, text)
        })?;
        let slot = claim.slot();
        if claim == Claim::Plugged(slot) {
            return Ok(slot);
        }
        if claim == Claim::Replace(slot) {
            // The agent let it go with its last container.
            live.call("unplugging an unused image", live.vm.unplug(slot)).await?;
            self.slots.emptied(slot);
        }
        let file =
            self.node.backends.images.open(&image.id).map_err(|error| {
                PodError::internal(format!("opening the image {}", image.id)).because(error)
            })?;
        live.call("plugging the image", live.vm.plug(slot, Plug::Image(file))).await?;
        // The slot counts as taken even if the container fails: the image is in it.
        self.slots.hold(slot, &image.id);
        self.slots.release(slot);
        Ok(slot)
    }

    /// Writes the container down and lets the agent build it; undoes both on failure.
    async fn build(
        &self,
        live: &Live,
        record: &Arc<ContainerRecord>,
        resolved: &Resolved,
    ) -> Result<Container, PodError> {
        let status = ContainerStatus::creating();
        self.node.records.put_new_container(record, &status).await?;
        match self.build_recorded(live, record, status, resolved).await {
            Ok(container) => Ok(container),
            Err(error) => Err(self.unbuild(live, record, error).await),
        }
    }

    async fn build_recorded(
        &self,
        live: &Live,
        record: &Arc<ContainerRecord>,
        mut status: ContainerStatus,
        resolved: &Resolved,
    ) -> Result<Container, PodError> {
        self.bind_mounts(record).await?;
        let output = log::open(&self.node.places, record, true).await?;
        let log_path = log::shown_path(&self.node.places, record);
        let spec_json = serde_json::to_vec(&resolved.spec)
            .map_err(|error| PodError::internal("writing the container's OCI spec").because(error))?;
        let request = CreateContainerRequest {
            container_id: record.id.clone(),
            spec_json,
            image_slot: u32::from(record.slot.number()),
            user: resolved.user.clone(),
            tty: record.spec.tty,
            stdin: record.spec.stdin,
            strict_groups: record.spec.security.supplemental_groups_strict,
            pid_target: record.spec.pid_target().unwrap_or_default().to_owned(),
            guest_devices: record.spec.security.privileged,
            shared_mounts: mounts::shared(&record.spec),
            image_volumes: mounts::image_volumes(record),
            block_devices: disks::block_devices(record),
            cgroup_files: record.spec.resources.cgroup_files()?.into_iter().collect(),
            ..CreateContainerRequest::default()
        };
        let creating = live.agent.create_container(request);
        let answer = live.call("creating the container in the guest", creating).await;
        let answer = answer.map_err(mounts::volume_error_first)?;
        status.user = User { uid: answer.uid, gid: answer.gid, groups: answer.supplemental_groups };
        status.stage = ContainerStage::Created;
        self.node.records.put_container_status(&record.id, &status).await?;
        Ok(Container::new(record.clone(), status, resolved, output, log_path))
    }

    /// Takes back what `build` began. The agent's part ends with the VM at the latest.
    async fn unbuild(&self, live: &Live, record: &ContainerRecord, error: PodError) -> PodError {
        let id = record.id.as_str();
        if let Err(undo) = live.call("removing the container", live.agent.remove_container(id)).await {
            tracing::warn!(container = id, error = undo.chain(), "a failed container stays in its guest");
        }
        if let Err(undo) = self.unbind_mounts(id, &record.spec).await {
            tracing::warn!(
                container = id,
                error = undo.chain(),
                "a failed container's mounts go with its pod"
            );
        }
        log::remove_acks(&self.node.places.acks_path(&self.record.id, id));
        if let Err(undo) = self.node.records.forget(None, &[id.to_owned()]).await {
            tracing::warn!(container = id, error = undo.chain(), "a failed container stays on record");
        }
        error
    }
}
