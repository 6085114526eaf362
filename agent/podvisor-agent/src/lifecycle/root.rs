//! A container's root file system: the image below, a directory of the scratch disk above. In a pod with a
//! user namespace the image is shown as the namespace maps its owners, so that what the image gives to root
//! is the namespace's root's; what lies above is written with the mapped owners, and needs no mapping.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use nix::mount::MsFlags;

use crate::containers::{Container, ContainerError};
use crate::lifecycle::mapped_mount::MappedMount;
use crate::pod::Pod;
use crate::scratch;

/// Mounts it.
pub(super) fn mount(pod: &Pod, container: &Container, image: &Path) -> Result<(), ContainerError> {
    let (upper, work) = (container.scratch().join("upper"), container.scratch().join("work"));
    // Before there is anything in it.
    fs::create_dir_all(container.scratch()).map_err(container.io("make the directories"))?;
    scratch::assign(&container.scratch(), container.project());
    for directory in [&container.rootfs(), &upper, &work] {
        fs::create_dir_all(directory).map_err(container.io("make the directories"))?;
    }
    // The root directory's mode and owner are the image's; overlayfs shows the upper's.
    let root = fs::metadata(image).map_err(container.io("look at the image"))?;
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
    // An overlay keeps a mount of its own, so the mapped one goes with this function.
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
