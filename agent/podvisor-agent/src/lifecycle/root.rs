//! A container's root file system: an overlay of the image below and a directory of the scratch disk above.
//! In a pod with a user namespace the image is mounted with mapped owners, so that root's files belong to the
//! namespace's root. Files above are written with mapped owners already.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use crate::containers::{Container, ContainerError};
use crate::lifecycle::build_mount::BuildMount;
use crate::lifecycle::layers::{self, Access, Layers};
use crate::pod::Pod;
use crate::scratch;

/// Mounts the container's root file system, with at most `bytes_max` bytes in its writable layer.
pub(super) async fn mount(
    pod: &Pod,
    container: &Arc<Container>,
    image: &Path,
    bytes_max: Option<u64>,
) -> Result<(), ContainerError> {
    // The root directory has the image's mode and owner.
    let root = fs::metadata(image).map_err(container.io("read the image"))?;
    let access = Access::of(pod, &root)?;
    let mapped = match pod.user_namespace.get() {
        Some(namespace) => Some(
            BuildMount::mapped(image, container.directory().join("image"), namespace)
                .map_err(container.io("map the image's owners"))?,
        ),
        None => None,
    };
    let (made, image) = (Arc::clone(container), image.to_owned());
    layers::on_disk(pod, container, move || {
        // The overlay has its own mount of it, so the mapped one can end here.
        let lower = mapped.as_ref().map_or(image.as_path(), BuildMount::path);
        make(&made, lower, &access, bytes_max)
    })
    .await
}

/// Makes the writable layer and mounts the overlay. Blocks on the scratch disk.
fn make(
    container: &Container,
    lower: &Path,
    access: &Access,
    bytes_max: Option<u64>,
) -> Result<(), ContainerError> {
    let (upper, work) = (container.scratch().join("upper"), container.scratch().join("work"));
    // While the directory is empty, because only files made later join the project.
    fs::create_dir_all(container.scratch()).map_err(container.io("make the directories"))?;
    scratch::assign(&container.scratch(), container.project(), bytes_max)
        .map_err(container.io("limit the writable layer"))?;
    for directory in [&container.rootfs(), &upper, &work] {
        fs::create_dir_all(directory).map_err(container.io("make the directories"))?;
    }
    access.give(&upper).map_err(container.io("prepare the writable layer"))?;
    let layers = Layers { lower, upper: &upper, work: &work };
    layers.mount(&container.rootfs()).map_err(container.io("mount the root"))
}
