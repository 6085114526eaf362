//! The layers of an overlay: a directory of an image below, directories of the scratch disk above.

use std::fs::{self, Metadata, Permissions};
use std::io;
use std::os::unix::fs::{MetadataExt, chown};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

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

/// Timeout for making a directory of the scratch disk, and an overlay there.
const MADE_WITHIN: Duration = Duration::from_secs(60);

/// Does work on the scratch disk. While that disk is full or frozen on the host, the work may hang, so it has
/// its own thread. A removal of the container waits for it.
pub(super) async fn on_disk<T: Send + 'static>(
    pod: &Pod,
    container: &Container,
    work: impl FnOnce() -> Result<T, ContainerError> + Send + 'static,
) -> Result<T, ContainerError> {
    let held = Arc::clone(&container.layers).lock_owned().await;
    let work = move || {
        let _held = held;
        work()
    };
    pod.scratch_work.run("make a writable layer", MADE_WITHIN, work).await?
}

/// The owner and mode of a directory, as seen in the guest. An overlay shows those of its upper directory.
pub(super) struct Access {
    pub(super) uid: u32,
    pub(super) gid: u32,
    pub(super) permissions: Permissions,
}

impl Access {
    /// Those of a directory of the image.
    pub(super) fn of(pod: &Pod, directory: &Metadata) -> Result<Access, ContainerError> {
        let (uid, gid) = pod.guest_ids(directory.uid(), directory.gid())?;
        Ok(Access { uid, gid, permissions: directory.permissions() })
    }

    pub(super) fn give(&self, directory: &Path) -> io::Result<()> {
        fs::set_permissions(directory, self.permissions.clone())?;
        chown(directory, Some(self.uid), Some(self.gid))?;
        // A change of owner clears the set-id bits.
        fs::set_permissions(directory, self.permissions.clone())
    }
}
