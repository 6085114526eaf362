//! Refuses impossible mounts.

use crate::{Mount, MountPropagation, PodSpec, SpecError, Tmpfs};

/// Most mounts of one container: far above pods' usual number, and few enough for a guest's table.
const MOUNTS_MAX: usize = 512;

/// Refuses invalid and unsupported mounts. It does not check that the host has the paths.
pub(super) fn check(mounts: &[Mount], tmpfs: &[Tmpfs], pod: &PodSpec) -> Result<(), SpecError> {
    let count = mounts.len() + tmpfs.len();
    if count > MOUNTS_MAX {
        return Err(SpecError::invalid("mounts", format!("{count} are more than {MOUNTS_MAX}")));
    }
    tmpfs.iter().try_for_each(|tmpfs| target(&tmpfs.container_path))?;
    mounts.iter().try_for_each(|mount| check_one(mount, pod))
}

/// A relative path is below the root, as in other runtimes.
fn target(target: &str) -> Result<(), SpecError> {
    if target.contains('\0') {
        return Err(SpecError::invalid("mounts.container_path", "holds a NUL byte"));
    }
    if target.is_empty() {
        return Err(SpecError::invalid("mounts.container_path", "is empty"));
    }
    if crate::container_path::normalized(target).parent().is_none() {
        let reason = format!("{target:?} is the container's root");
        return Err(SpecError::invalid("mounts.container_path", reason));
    }
    Ok(())
}

fn check_one(mount: &Mount, pod: &PodSpec) -> Result<(), SpecError> {
    let target = &mount.container_path;
    self::target(target)?;
    let (uids, gids) = (&mount.uid_mappings, &mount.gid_mappings);
    for (field, asked, of_pod) in [
        ("mounts.uid_mappings", uids, &pod.namespaces.uids),
        ("mounts.gid_mappings", gids, &pod.namespaces.gids),
    ] {
        if !(uids.is_empty() && gids.is_empty()) && asked != of_pod {
            let reason = format!("for {target} differ from those of the pod's user namespace");
            return Err(SpecError::invalid(field, reason));
        }
    }
    if mount.propagation == MountPropagation::Bidirectional {
        let reason = format!("BIDIRECTIONAL for {target}: a container in a VM cannot mount into the node");
        return Err(SpecError::invalid("mounts.propagation", reason));
    }
    if mount.recursive_read_only {
        let why_not = match mount.propagation {
            _ if !mount.readonly => Some("readonly"),
            MountPropagation::Private => None,
            _ => Some("propagation PRIVATE"),
        };
        if let Some(needed) = why_not {
            let reason = format!("for {target} needs {needed} as well");
            return Err(SpecError::invalid("mounts.recursive_read_only", reason));
        }
    }
    if mount.image.is_empty() { host_path(mount) } else { image(mount) }
}

fn host_path(mount: &Mount) -> Result<(), SpecError> {
    if !mount.image_sub_path.is_empty() {
        let reason = format!("for {} goes with an image only", mount.container_path);
        return Err(SpecError::invalid("mounts.image_sub_path", reason));
    }
    path("mounts.host_path", &mount.host_path)
}

fn image(mount: &Mount) -> Result<(), SpecError> {
    let target = &mount.container_path;
    if !mount.host_path.is_empty() {
        let reason = format!("{:?} for {target}: an image is named as well", mount.host_path);
        return Err(SpecError::invalid("mounts.host_path", reason));
    }
    if !mount.readonly {
        let reason = format!("must be set for {target}: an image volume is never writable");
        return Err(SpecError::invalid("mounts.readonly", reason));
    }
    if mount.propagation != MountPropagation::Private {
        let reason = format!("for {target}: nothing is ever mounted in an image volume");
        return Err(SpecError::invalid("mounts.propagation", reason));
    }
    if mount.image_sub_path.contains('\0') {
        return Err(SpecError::invalid("mounts.image_sub_path", "holds a NUL byte"));
    }
    Ok(())
}

fn path(field: &'static str, path: &str) -> Result<(), SpecError> {
    if path.contains('\0') {
        return Err(SpecError::invalid(field, "holds a NUL byte"));
    }
    if !path.starts_with('/') {
        return Err(SpecError::invalid(field, format!("{path:?} is not absolute")));
    }
    Ok(())
}
