//! What a container mounts: host paths, bound into the pod's shared directory, and images, plugged like
//! its own.

use std::path::{Path, PathBuf};

use proto_agent::{agent, guest_path};
use runtime_guest::FailureReason;
use runtime_share::{Access, Bind, Ids, Owners, Propagation};
use runtime_spec::{ContainerSpec, IdMapping, Mount, MountPropagation, share_name};

use super::Driver;
use crate::backend::Place;
use crate::error::{PodError, PodErrorKind};
use crate::live::Live;
use crate::record::{ContainerRecord, ImageVolume};

/// The start of the message where an image volume cannot be mounted: the kubelet knows such failures by it
/// (kubelet `kuberuntime_container.go`, `ErrImageVolumeMountFailed`).
const IMAGE_VOLUME_MOUNT_FAILED: &str = "ImageVolumeMountFailed";

/// Is there where the node's kernel runs with SELinux (selinux(8)).
const SELINUX: &str = "/sys/fs/selinux/enforce";

impl Driver {
    /// Binds the host paths that the container mounts: all or none.
    pub(super) async fn bind_mounts(&self, record: &ContainerRecord) -> Result<(), PodError> {
        let binds: Vec<_> = host_mounts(&record.spec).map(|(number, mount)| (number, bind(mount))).collect();
        if binds.is_empty() {
            return Ok(());
        }
        refuse_relabels(&record.spec, Path::new(SELINUX))?;
        let bound = self.node.backends.shares.bind(self.place(&record.id), binds).await;
        bound.map_err(|error| error.during("mounts"))
    }

    /// Takes the container's binds away. Idempotent.
    pub(super) async fn unbind_mounts(&self, id: &str, spec: &ContainerSpec) -> Result<(), PodError> {
        let numbers: Vec<usize> = host_mounts(spec).map(|(number, _)| number).collect();
        if numbers.is_empty() {
            return Ok(());
        }
        let unbound = self.node.backends.shares.unbind(self.place(id), numbers).await;
        unbound.map_err(|error| PodError::internal("taking the mounts away").because(error))
    }

    fn place(&self, id: &str) -> Place {
        let shared = self.node.places.pod_shared_dir(&self.record.id);
        Place { shared, container: share_name(id).to_owned(), vmm: self.status.vmm }
    }

    /// Plugs the images that the container mounts, and holds their slots: all or none.
    pub(super) async fn plug_volumes(
        &mut self,
        live: &Live,
        spec: &ContainerSpec,
    ) -> Result<Vec<ImageVolume>, PodError> {
        let mut volumes = Vec::new();
        for (number, mount) in image_mounts(spec) {
            match self.plug_volume(live, number, mount).await {
                Ok(volume) => volumes.push(volume),
                Err(error) => {
                    self.release_volumes(&volumes);
                    let text = format!("{IMAGE_VOLUME_MOUNT_FAILED}: {error}");
                    return Err(error.reworded(text));
                }
            }
        }
        Ok(volumes)
    }

    async fn plug_volume(
        &mut self,
        live: &Live,
        number: usize,
        mount: &Mount,
    ) -> Result<ImageVolume, PodError> {
        let image = self.find_image(&mount.image)?;
        let slot = self.plug_image(live, &image).await?;
        self.slots.hold(slot, &image.id);
        Ok(ImageVolume { number, image_id: image.id, slot })
    }

    pub(super) fn release_volumes(&mut self, volumes: &[ImageVolume]) {
        volumes.iter().for_each(|volume| self.slots.release(volume.slot));
    }
}

/// Whether the container mounts something of the shared directory.
pub(super) fn shared(spec: &ContainerSpec) -> bool {
    host_mounts(spec).next().is_some()
}

/// What the agent is told of the container's image volumes.
pub(super) fn image_volumes(record: &ContainerRecord) -> Vec<agent::ImageVolume> {
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

/// An image volume's failure in the guest has the agent's message, behind what the kubelet expects.
pub(super) fn volume_error_first(error: PodError) -> PodError {
    match error.reason() {
        Some(FailureReason::ImageVolumeMount) => error.reworded(IMAGE_VOLUME_MOUNT_FAILED.to_owned()),
        _ => error,
    }
}

fn host_mounts(spec: &ContainerSpec) -> impl Iterator<Item = (usize, &Mount)> {
    spec.mounts.iter().enumerate().filter(|(_, mount)| mount.image.is_empty())
}

fn image_mounts(spec: &ContainerSpec) -> impl Iterator<Item = (usize, &Mount)> {
    spec.mounts.iter().enumerate().filter(|(_, mount)| !mount.image.is_empty())
}

fn bind(mount: &Mount) -> Bind {
    Bind {
        source: PathBuf::from(&mount.host_path),
        access: match (mount.readonly, mount.recursive_read_only) {
            (_, true) => Access::ReadOnlyRecursive,
            (true, false) => Access::ReadOnly,
            (false, false) => Access::ReadWrite,
        },
        propagation: match mount.propagation {
            MountPropagation::Private => Propagation::Private,
            // A mount in a VM cannot reach the host: refused by the spec's check.
            MountPropagation::HostToContainer | MountPropagation::Bidirectional => {
                Propagation::HostToContainer
            }
        },
        owners: owners(mount),
    }
}

/// One mapping of each kind or none: the spec was checked.
fn owners(mount: &Mount) -> Option<Owners> {
    let ids = |mapping: &IdMapping| Ids { shown_as: mapping.host_id, length: mapping.length };
    let (uids, gids) = (mount.uid_mappings.first()?, mount.gid_mappings.first()?);
    Some(Owners { uids: ids(uids), gids: ids(gids) })
}

/// Without SELinux files have no labels, and the wish means nothing. With it they would stay as they are.
fn refuse_relabels(spec: &ContainerSpec, selinux: &Path) -> Result<(), PodError> {
    match spec.mounts.iter().find(|mount| mount.selinux_relabel) {
        Some(mount) if selinux.exists() => {
            let text = format!("mounts.selinux_relabel: labels (for {}) are not set here", mount.host_path);
            Err(PodError::new(PodErrorKind::Unsupported, text))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use runtime_guest::{GuestError, RefusedCode};

    use super::*;
    use crate::backend::BackendError;

    #[test]
    fn a_label_is_refused_only_where_labels_are() {
        let mount = Mount { selinux_relabel: true, ..Mount::default() };
        let spec = ContainerSpec { mounts: vec![mount], ..ContainerSpec::default() };
        let dir = tempfile::tempdir().unwrap();
        let selinux = dir.path().join("enforce");
        refuse_relabels(&spec, &selinux).unwrap();
        std::fs::write(&selinux, "1").unwrap();
        assert_eq!(refuse_relabels(&spec, &selinux).unwrap_err().kind(), PodErrorKind::Unsupported);
        refuse_relabels(&ContainerSpec::default(), &selinux).unwrap();
    }

    #[test]
    fn an_agents_word_on_a_volume_comes_first() {
        let refused = |reason| {
            let (method, message, code) = ("CreateContainer", "no \"x\"".to_owned(), RefusedCode::Other);
            let cause = GuestError::Refused { method, message, code, reason };
            BackendError::from(cause).during("creating the container in the guest")
        };
        let error = volume_error_first(refused(Some(FailureReason::ImageVolumeMount)));
        assert_eq!(error.kind(), PodErrorKind::InvalidArgument);
        assert_eq!(error.chain(), "ImageVolumeMountFailed: no \"x\"");
        let other = refused(None);
        assert_eq!(volume_error_first(other.clone()).chain(), other.chain());
    }
}
