//! Volumes declared by an image: directories of the container, beside its root. The agent fills them with the
//! image's files there. The paths are untrusted input.

use std::collections::BTreeSet;
use std::path::Path;

use super::guest_paths::GuestPaths;
use super::mounts::{self, DeclaredVolumePlan};
use crate::container_path::normalized;
use crate::{ContainerSpec, ImageConfig, SpecError};

/// Most volumes of one image: far above images' usual number.
const VOLUMES_MAX: usize = 64;

/// Longest path of a volume (`PATH_MAX`, include/uapi/linux/limits.h).
const PATH_BYTES_MAX: usize = 4096;

/// The kernel's own file systems. They keep their places: a volume below them is left out. Images made for
/// systemd declare `/sys/fs/cgroup`.
const KERNEL_PATHS: [&str; 2] = ["/proc", "/sys"];

/// The container's declared volumes. A requested mount, or one of every container, replaces a volume at the
/// same path. A path in one of the kernel's file systems is no volume.
pub(super) fn declared_volumes(
    container: &ContainerSpec,
    image: &ImageConfig,
    paths: &GuestPaths,
) -> Result<Vec<DeclaredVolumePlan>, SpecError> {
    if image.volumes.len() > VOLUMES_MAX {
        let reason =
            format!("the image declares {}, at most {VOLUMES_MAX} are possible", image.volumes.len());
        return Err(SpecError::invalid("image.volumes", reason));
    }
    let wanted: BTreeSet<String> =
        image.volumes.iter().map(|path| checked(path)).collect::<Result<_, _>>()?;
    let is_free = |path: &Path| !is_kernels(path) && !mounts::is_taken(container, path, paths);
    let free = wanted.into_iter().filter(|path| is_free(Path::new(path)));
    let volumes = free.enumerate().map(|(number, path)| {
        let source = format!("{}/{number}", paths.declared_volumes);
        DeclaredVolumePlan { source, path }
    });
    Ok(volumes.collect())
}

/// The path from the root. A relative one starts at the root, as in other runtimes.
fn checked(path: &str) -> Result<String, SpecError> {
    let refused = |why: &str| {
        let shown: String = path.chars().take(128).collect();
        Err(SpecError::invalid("image.volumes", format!("the image declares {shown:?}, {why}")))
    };
    if path.contains('\0') || path.len() > PATH_BYTES_MAX {
        return refused("but it is no path");
    }
    let clean = normalized(path);
    if clean.parent().is_none() {
        return refused("but it is the container's root");
    }
    Ok(clean.to_string_lossy().into_owned())
}

fn is_kernels(path: &Path) -> bool {
    KERNEL_PATHS.iter().any(|kernels| path.starts_with(kernels))
}
