//! Makes a container: admission, image slot, agent; each step with its undo.

use std::path::PathBuf;
use std::sync::Arc;

use proto_agent::agent::CreateContainerRequest;
use proto_vmm::Slot;
use runtime_logs::LogFile;
use runtime_spec::{ContainerSpec, PodSpec, Resolved, resolve};

use super::{Driver, disks, mounts};
use crate::acks::Acks;
use crate::admission::{self, Known};
use crate::container::Container;
use crate::device_slots::Claim;
use crate::node::GUEST_PATHS;
use crate::outside::{FoundImage, Plug};
use crate::record::{ContainerRecord, ContainerStage, ContainerStatus};
use crate::roster::Live;
use crate::{PodError, PodErrorKind, User, clock, seccomp_file};

impl Driver {
    /// Makes a container and answers its id.
    pub(super) async fn create(&mut self, spec: ContainerSpec) -> Result<String, PodError> {
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
        let before = self.machine_size();
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
            log_path: log_path(&self.record.spec, &spec),
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
        self.node.images.find(name).ok_or_else(|| {
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
            live.call("unplugging an unused image", live.machine.unplug(slot)).await?;
            self.slots.emptied(slot);
        }
        let file =
            self.node.images.open(&image.id).map_err(|fault| {
                PodError::internal(format!("opening the image {}", image.id)).because(fault)
            })?;
        live.call("plugging the image", live.machine.plug(slot, Plug::Image(file))).await?;
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
        self.node.put_new_container(record, &status).await?;
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
        let (log, acks) = open_log(self, record, true).await?;
        let log = (log, shown_log_path(self, record));
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
        let answer = answer.map_err(mounts::told_of_volumes)?;
        status.user = User { uid: answer.uid, gid: answer.gid, groups: answer.supplemental_groups };
        status.stage = ContainerStage::Created;
        self.node.put_container_status(&record.id, &status).await?;
        Ok(Container::new(record.clone(), status, resolved, log, acks))
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
        remove_acks(self, id);
        if let Err(undo) = self.node.forget(None, &[id.to_owned()]).await {
            tracing::warn!(container = id, error = undo.chain(), "a failed container stays on record");
        }
        error
    }
}

/// The container's log and how much of it is acknowledged. The log of one that has ended is not `wanted`:
/// nothing will be written, and the file may have been rotated away.
pub(super) async fn open_log(
    driver: &Driver,
    record: &ContainerRecord,
    wanted: bool,
) -> Result<(LogFile, Acks), PodError> {
    let log = match record.log_path.as_ref().filter(|_| wanted) {
        Some(path) => LogFile::open(path).await.map_err(|error| {
            PodError::internal(format!("opening the log {}", path.display())).because(error)
        })?,
        None => LogFile::discard(),
    };
    let path = driver.node.acks_path(&record.pod_id, &record.id);
    let acks = Acks::open(&path)
        .map_err(|error| PodError::internal(format!("opening {}", path.display())).because(error))?;
    Ok((log, acks))
}

/// Where the container's log is. Without one it is a path of the pod's own where nothing is: clients may
/// remove `log_path + "*"`, which for an empty path is whatever lies in their working directory (kubelet
/// `container_log_manager.go`, `Clean`).
pub(super) fn shown_log_path(driver: &Driver, record: &ContainerRecord) -> PathBuf {
    let unlogged = || driver.node.pod_state_dir(&record.pod_id).join(format!("{}.log", record.id));
    record.log_path.clone().unwrap_or_else(unlogged)
}

/// Takes the acknowledgements away, with the container.
pub(super) fn remove_acks(driver: &Driver, id: &str) {
    let path = driver.node.acks_path(&driver.record.id, id);
    match std::fs::remove_file(&path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            tracing::warn!(path = %path.display(), %error, "a small file stays until the pod goes");
        }
        _ => {}
    }
}

/// Absolute, where the pod has a directory and the container a path in it.
fn log_path(pod: &PodSpec, spec: &ContainerSpec) -> Option<PathBuf> {
    let path = spec.log_path.as_deref().filter(|path| !path.is_empty())?;
    Some(pod.log_directory.as_ref()?.join(path))
}
