//! Volumes that an image declares: directories of the container's own, beside its root, which the agent fills with what
//! the image has there. The paths are a stranger's.

use std::collections::BTreeSet;
use std::path::Path;

use super::guest_paths::GuestPaths;
use super::mounts::{self, DeclaredVolumePlan};
use crate::container_path::normalized;
use crate::{ContainerSpec, ImageConfig, SpecError};

/// Volumes of one image: far above what images have.
const VOLUMES_MAX: usize = 64;

/// Longest path of a volume (`PATH_MAX`, include/uapi/linux/limits.h).
const PATH_BYTES_MAX: usize = 4096;

/// The kernel's own file systems, below which there is no place for a volume.
const KERNEL_PATHS: [&str; 2] = ["/proc", "/sys"];

/// The volumes that the container gets. A mount that is asked for, or that every container has, takes the place of a volume
/// at the same path.
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
    let free = wanted.into_iter().filter(|path| !mounts::is_taken(container, Path::new(path), paths));
    let volumes = free.enumerate().map(|(number, path)| {
        let source = format!("{}/{number}", paths.declared_volumes);
        DeclaredVolumePlan { source, path }
    });
    Ok(volumes.collect())
}

/// The path as one from the root, as other runtimes take a relative one.
fn checked(path: &str) -> Result<String, SpecError> {
    let refused = |why: &str| {
        let shown: String = path.chars().take(128).collect();
        Err(SpecError::invalid("image.volumes", format!("the image declares {shown:?}, {why}")))
    };
    if path.contains('\0') || path.len() > PATH_BYTES_MAX {
        return refused("which is no path");
    }
    let clean = normalized(path);
    if clean.parent().is_none() {
        return refused("which is the container's root");
    }
    if KERNEL_PATHS.iter().any(|kernels| clean.starts_with(kernels) && clean != Path::new(kernels)) {
        return refused("which is in the kernel's file systems");
    }
    Ok(clean.to_string_lossy().into_owned())
}
