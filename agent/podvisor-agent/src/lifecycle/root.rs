//! A container's root file system: an overlay of the image below and a directory of the scratch disk above. In a pod
//! with a user namespace the image is mounted with mapped owners, so that root's files belong to the namespace's
//! root. Files above are written with mapped owners already.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use nix::mount::MsFlags;

use crate::containers::{Container, ContainerError};
use crate::lifecycle::mapped_mount::MappedMount;
use crate::pod::Pod;
use crate::scratch;

/// Mounts the container's root file system.
pub(super) fn mount(pod: &Pod, container: &Container, image: &Path) -> Result<(), ContainerError> {
    let (upper, work) = (container.scratch().join("upper"), container.scratch().join("work"));
    // While the directory is empty: only files made later join the project.
    fs::create_dir_all(container.scratch()).map_err(container.io("make the directories"))?;
    scratch::assign(&container.scratch(), container.project());
    for directory in [&container.rootfs(), &upper, &work] {
        fs::create_dir_all(directory).map_err(container.io("make the directories"))?;
    }
    // The root directory has the image's mode and owner; overlayfs shows the upper directory's.
    let root = fs::metadata(image).map_err(container.io("read the image"))?;
    let (uid, gid) = pod.guest_ids(root.uid(), root.gid())?;
    fs::set_permissions(&upper, root.permissions())
        .and_then(|()| std::os::unix::fs::chown(&upper, Some(uid), Some(gid)))
        .map_err(container.io("prepare the writable layer"))?;
    let mapped = match pod.user_namespace.get() {
        Some(namespace) => Some(
            MappedMount::mount(image, container.directory().join("image"), namespace)
                .map_err(container.io("map the image's owners"))?,
        ),
        None => None,
    };
    // An overlay keeps a mount of its own, so the mapped one can end with this function.
    let lower = mapped.as_ref().map_or(image, MappedMount::path);
    let options =
        format!("lowerdir={},upperdir={},workdir={}", lower.display(), upper.display(), work.display());
    nix::mount::mount(
        Some("overlay"),
        &container.rootfs(),
        Some("overlay"),
        MsFlags::empty(),
        Some(options.as_str()),
    )
    .map_err(|errno| container.io("mount the root")(errno.into()))
}
