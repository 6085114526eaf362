//! The mounts of a container's spec, for the host's shared directory and the agent. Pure.
//!
//! A request to relabel a mount is ignored. The kubelet sends one with every mount on a node with SELinux,
//! and a guest has no policy for labels.

use std::path::PathBuf;

use runtime_guest::FailureReason;
use runtime_share::{Access, Bind, Ids, Owners, Propagation};
use runtime_spec::{ContainerSpec, IdMapping, Mount, MountPropagation, share_name};

use crate::error::PodError;
use crate::record::{ContainerRecord, GuestVolume, HostSocket, SharedPlace};

/// The start of the message for a failed mount of an image volume: the kubelet identifies such failures by it
/// (kubelet `kuberuntime_container.go`, `ErrImageVolumeMountFailed`).
pub(crate) const IMAGE_VOLUME_MOUNT_FAILED: &str = "ImageVolumeMountFailed";

/// The mounts of the container's host paths. Volumes kept by the guest itself are none, nor are socket
/// mounts.
pub(crate) fn of_host<'a>(
    spec: &'a ContainerSpec,
    kept: &'a [GuestVolume],
    sockets: &'a [HostSocket],
) -> impl Iterator<Item = (usize, &'a Mount)> {
    let is_kept = |number: usize| {
        kept.iter().any(|volume| volume.number == number)
            || sockets.iter().any(|socket| socket.number == number && socket.sub_path.is_none())
    };
    spec.host_mounts().filter(move |(number, _)| !is_kept(*number))
}

/// The binds of the container's own. Mounts at places of other containers need none.
pub(crate) fn binds(record: &ContainerRecord) -> Vec<(usize, Bind)> {
    let is_joined = |number: usize| record.joined.iter().any(|joined| joined.number == number);
    let own = of_host(&record.spec, &record.guest_volumes, &record.host_sockets)
        .filter(|(number, _)| !is_joined(*number));
    own.map(|(number, mount)| (number, bind(mount))).collect()
}

/// Whether the container has a mount of the host.
pub(crate) fn has_any(record: &ContainerRecord) -> bool {
    of_host(&record.spec, &record.guest_volumes, &record.host_sockets).next().is_some()
}

/// The places with the container's mounts: its own and other containers'.
pub(crate) fn places(record: &ContainerRecord) -> Vec<SharedPlace> {
    let directory = share_name(&record.id);
    let own = binds(record).into_iter().filter_map(|(number, _)| {
        let mount = record.spec.mounts.get(number)?.clone();
        Some(SharedPlace { container: directory.to_owned(), number, mount })
    });
    own.chain(record.joined.iter().map(|joined| joined.place.clone())).collect()
}

/// How a mount may use a place made for another one with the same files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Use {
    /// As it is.
    AsIs,
    /// Only if nothing is mounted below: the guest keeps writers out, and would keep them out below as well.
    IfNothingBelow,
}

/// Whether `asked` may use the place of `made`, by their options alone. Paths are compared as far as to leave
/// volumes of other servers alone: one that hangs must hold up none but its own users.
pub(crate) fn may_use(asked: &Mount, made: &Mount) -> Option<Use> {
    let (ours, theirs) = (bind(asked), bind(made));
    let is_alike = volume_of(&asked.host_path) == volume_of(&made.host_path)
        && (ours.propagation, ours.owners) == (theirs.propagation, theirs.owners);
    match (ours.access, theirs.access) {
        (ours, theirs) if is_alike && ours == theirs => Some(Use::AsIs),
        // With later mounts of the node, something may be below at any time.
        (Access::ReadOnly | Access::ReadOnlyRecursive, Access::ReadWrite)
            if is_alike && asked.propagation == MountPropagation::Private =>
        {
            Some(Use::IfNothingBelow)
        }
        _ => None,
    }
}

/// The path, or the part of a subPath's that its volume's subPaths have in common: the kubelet has one path
/// for each container (kubelet `pkg/volume/util/subpath`).
fn volume_of(path: &str) -> &str {
    const SUB_PATHS: &str = "/volume-subpaths/";
    let Some((before, rest)) = path.split_once(SUB_PATHS) else { return path };
    let name = rest.split('/').next().unwrap_or_default();
    path.get(..before.len() + SUB_PATHS.len() + name.len()).unwrap_or(path)
}

/// An image volume's failure in the guest: the text expected by the kubelet, then the agent's message.
pub(crate) fn volume_error_first(error: PodError) -> PodError {
    match error.reason() {
        Some(FailureReason::ImageVolumeMount) => error.reworded(IMAGE_VOLUME_MOUNT_FAILED.to_owned()),
        _ => error,
    }
}

/// The access of the bind for this mount.
pub(crate) fn access(mount: &Mount) -> Access {
    match (mount.readonly, mount.recursive_read_only) {
        (_, true) => Access::ReadOnlyRecursive,
        (true, false) => Access::ReadOnly,
        (false, false) => Access::ReadWrite,
    }
}

fn bind(mount: &Mount) -> Bind {
    Bind {
        source: PathBuf::from(&mount.host_path),
        must_exist: mount.must_exist,
        access: access(mount),
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
            let spec = ContainerSpec { mounts: vec![mount], ..ContainerSpec::default() };
            of_host(&spec, &[], &[]).map(|(number, mount)| (number, bind(mount))).collect::<Vec<_>>()
        };
        assert_eq!(mount(true).len(), 1);
        assert_eq!(format!("{:?}", mount(true)), format!("{:?}", mount(false)));
    }

    #[test]
    fn a_place_is_used_by_mounts_that_may_do_no_more_there() {
        let mount =
            |host_path: &str, readonly| Mount { host_path: host_path.into(), readonly, ..Mount::default() };
        let (whole, read_only) = (mount("/data", false), mount("/data", true));
        assert_eq!(may_use(&whole, &whole), Some(Use::AsIs));
        assert_eq!(may_use(&read_only, &read_only), Some(Use::AsIs));
        assert_eq!(may_use(&read_only, &whole), Some(Use::IfNothingBelow));
        assert_eq!(may_use(&whole, &read_only), None);
        assert_eq!(may_use(&whole, &mount("/other", false)), None);
        let late = Mount { propagation: MountPropagation::HostToContainer, ..whole.clone() };
        assert_eq!(may_use(&whole, &late), None);
        assert_eq!(may_use(&Mount { readonly: true, ..late.clone() }, &late), None);
        let one = IdMapping { container_id: 0, host_id: 0, length: 9 };
        let mapped = Mount { uid_mappings: vec![one], gid_mappings: vec![one], ..whole.clone() };
        assert_eq!((may_use(&whole, &mapped), may_use(&mapped, &mapped)), (None, Some(Use::AsIs)));
        let of = |path: &str| mount(&format!("/pods/u/volume-subpaths/{path}"), false);
        assert_eq!(may_use(&of("db/app/0"), &of("db/backup/1")), Some(Use::AsIs));
        assert_eq!(may_use(&of("db/app/0"), &of("db2/app/0")), None);
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
