//! The layers of an overlay: a directory of an image below, directories of the scratch disk above.

use std::fs::{self, Metadata};
use std::io;
use std::os::unix::fs::{MetadataExt, chown};
use std::path::Path;

use nix::mount::{MsFlags, mount};

use crate::containers::{Container, ContainerError};
use crate::pod::Pod;

/// Directories of an overlay. The paths are the agent's, because no text of an image may get into a mount's
/// options.
#[derive(Debug)]
pub(super) struct Layers<'a> {
    pub(super) lower: &'a Path,
    pub(super) upper: &'a Path,
    pub(super) work: &'a Path,
}

impl Layers<'_> {
    /// Mounts the overlay.
    pub(super) fn mount(&self, at: &Path) -> io::Result<()> {
        let Layers { lower, upper, work } = self;
        // `xino`: a file keeps its inode number at its first write. Programs identify files by it.
        // `volatile`: the layer is lost with the VM, so no sync of it has to reach the disk. Without it, the
        // unmount of one container's root would wait until the layers of all are on a disk that may be slow
        // or full.
        let (lower, upper, work) = (lower.display(), upper.display(), work.display());
        let options = format!("lowerdir={lower},upperdir={upper},workdir={work},xino=on,volatile");
        Ok(mount(Some("overlay"), at, Some("overlay"), MsFlags::empty(), Some(options.as_str()))?)
    }
}

/// Gives a directory the owner and mode of one of the image. An overlay shows those of its upper directory.
pub(super) fn make_like(
    pod: &Pod,
    container: &Container,
    directory: &Path,
    like: &Metadata,
) -> Result<(), ContainerError> {
    let (uid, gid) = pod.guest_ids(like.uid(), like.gid())?;
    fs::set_permissions(directory, like.permissions())
        .and_then(|()| chown(directory, Some(uid), Some(gid)))
        // A change of owner clears the set-id bits.
        .and_then(|()| fs::set_permissions(directory, like.permissions()))
        .map_err(container.io("prepare the writable layer"))
}
