//! The mounts of a container's spec, for the host's shared directory and the agent. Pure.
//!
//! A request to relabel a mount is ignored. The kubelet sends one with every mount on a node with SELinux,
//! and a guest has no policy for labels.

use std::path::PathBuf;

use runtime_guest::FailureReason;
use runtime_share::{Access, Bind, Ids, Owners, Propagation};
use runtime_spec::{ContainerSpec, IdMapping, Mount, MountPropagation};

use crate::error::PodError;
use crate::record::{GuestVolume, HostSocket};

/// The start of the message for a failed mount of an image volume: the kubelet identifies such failures by it
/// (kubelet `kuberuntime_container.go`, `ErrImageVolumeMountFailed`).
pub(crate) const IMAGE_VOLUME_MOUNT_FAILED: &str = "ImageVolumeMountFailed";

/// The binds for the container's host paths. Volumes kept by the guest itself need none, nor do socket
/// mounts.
pub(crate) fn binds(
    spec: &ContainerSpec,
    kept: &[GuestVolume],
    sockets: &[HostSocket],
) -> Vec<(usize, Bind)> {
    let is_kept = |number: usize| {
        kept.iter().any(|volume| volume.number == number)
            || sockets.iter().any(|socket| socket.number == number && socket.sub_path.is_none())
    };
    let bound = spec.host_mounts().filter(|(number, _)| !is_kept(*number));
    bound.map(|(number, mount)| (number, bind(mount))).collect()
}

/// An image volume's failure in the guest: the text expected by the kubelet, then the agent's message.
pub(crate) fn volume_error_first(error: PodError) -> PodError {
    match error.reason() {
        Some(FailureReason::ImageVolumeMount) => error.reworded(IMAGE_VOLUME_MOUNT_FAILED.to_owned()),
        _ => error,
    }
}

fn bind(mount: &Mount) -> Bind {
    Bind {
        source: PathBuf::from(&mount.host_path),
        must_exist: mount.must_exist,
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

#[cfg(test)]
mod tests {
    use runtime_guest::{GuestError, RefusedCode};
    use runtime_spans::GuestText;

    use super::*;
    use crate::backend::BackendError;
    use crate::error::PodErrorKind;

    #[test]
    fn a_request_to_relabel_is_passed_over() {
        let mount = |selinux_relabel| {
            let mount = Mount { host_path: "/data".into(), selinux_relabel, ..Mount::default() };
            binds(&ContainerSpec { mounts: vec![mount], ..ContainerSpec::default() }, &[], &[])
        };
        assert_eq!(mount(true).len(), 1);
        assert_eq!(format!("{:?}", mount(true)), format!("{:?}", mount(false)));
    }

    #[test]
    fn an_agents_word_on_a_volume_comes_first() {
        let refused = |reason| {
            let (method, message, code) =
                ("CreateContainer", GuestText("no \"x\"".to_owned()), RefusedCode::Other);
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
