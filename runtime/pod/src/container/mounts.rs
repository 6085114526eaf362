//! The mounts of a container's spec, as the host's shared directory and the agent take them. Pure, but for one
//! look at whether the node has SELinux.

use std::path::{Path, PathBuf};

use runtime_guest::FailureReason;
use runtime_share::{Access, Bind, Ids, Owners, Propagation};
use runtime_spec::{ContainerSpec, IdMapping, Mount, MountPropagation};

use crate::error::{PodError, PodErrorKind};

/// The start of the message where an image volume cannot be mounted: the kubelet knows such failures by it
/// (kubelet `kuberuntime_container.go`, `ErrImageVolumeMountFailed`).
pub(crate) const IMAGE_VOLUME_MOUNT_FAILED: &str = "ImageVolumeMountFailed";

/// Exists where the node's kernel runs with SELinux (selinux(8)).
const SELINUX: &str = "/sys/fs/selinux/enforce";

/// The binds that the host paths of the container take.
pub(crate) fn binds(spec: &ContainerSpec) -> Result<Vec<(usize, Bind)>, PodError> {
    let binds: Vec<_> = spec.host_mounts().map(|(number, mount)| (number, bind(mount))).collect();
    if !binds.is_empty() {
        refuse_relabels(spec, Path::new(SELINUX))?;
    }
    Ok(binds)
}

/// An image volume's failure in the guest has the agent's message, behind what the kubelet expects.
pub(crate) fn volume_error_first(error: PodError) -> PodError {
    match error.reason() {
        Some(FailureReason::ImageVolumeMount) => error.reworded(IMAGE_VOLUME_MOUNT_FAILED.to_owned()),
        _ => error,
    }
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

/// The mapped owners of a mount, if any. The checked spec has one mapping of each kind or none.
fn owners(mount: &Mount) -> Option<Owners> {
    let ids = |mapping: &IdMapping| Ids { shown_as: mapping.host_id, length: mapping.length };
    let (uids, gids) = (mount.uid_mappings.first()?, mount.gid_mappings.first()?);
    Some(Owners { uids: ids(uids), gids: ids(gids) })
}

/// Refuses relabelling where the node has SELinux, since labels would stay as they are. Elsewhere files have no
/// labels, and the request means nothing.
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
