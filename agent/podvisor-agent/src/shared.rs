//! The pod's shared directory: the host's files that containers mount, over virtio-fs. The directory is mounted for
//! the first container that asks, so that a pod without such mounts pays nothing. The host binds its files there
//! (`runtime/share`).

use std::fs::{self, File};
use std::io;
use std::sync::Arc;
use std::time::Duration;

use nix::mount::{MntFlags, MsFlags};
use proto_agent::{SHARE_TAG, guest_path};
use tokio::sync::Mutex;

/// How long the host may take to write what is still in the guest's memory. A container's end is reported then all the
/// same: a disk that hangs must not make containers that never end.
const SYNC: Duration = Duration::from_secs(30);

/// Why the shared directory could not be mounted.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SharedError {
    #[error("cannot make {}", guest_path::SHARED)]
    Directory(#[source] io::Error),
    #[error("cannot mount the pod's shared directory, {SHARE_TAG}")]
    Mount(#[source] nix::Error),
    #[error("cannot open the pod's shared directory")]
    Open(#[source] io::Error),
}

/// The shared directory, mounted or not. The lock is held through the mount.
#[derive(Debug, Default)]
pub(crate) struct Shared {
    root: Mutex<Option<Arc<File>>>,
}

impl Shared {
    /// Mounts the directory, unless it is mounted.
    pub(crate) async fn mount(&self) -> Result<(), SharedError> {
        let mut root = self.root.lock().await;
        if root.is_some() {
            return Ok(());
        }
        fs::create_dir_all(guest_path::SHARED).map_err(SharedError::Directory)?;
        // A device number of the host's means another device here.
        let flags = MsFlags::MS_NODEV;
        nix::mount::mount(Some(SHARE_TAG), guest_path::SHARED, Some("virtiofs"), flags, None::<&str>)
            .map_err(SharedError::Mount)?;
        match File::open(guest_path::SHARED) {
            Ok(opened) => *root = Some(Arc::new(opened)),
            Err(error) => {
                // The next container would mount the directory once more otherwise.
                let _ = nix::mount::umount2(guest_path::SHARED, MntFlags::MNT_DETACH);
                return Err(SharedError::Open(error));
            }
        }
        Ok(())
    }

    /// Sends the host what programs wrote through memory mappings; the host has what they wrote by calls.
    pub(crate) async fn sync(&self) {
        let Some(root) = self.root.lock().await.clone() else { return };
        let syncing = tokio::task::spawn_blocking(move || rustix::fs::syncfs(&*root));
        match tokio::time::timeout(SYNC, syncing).await {
            Ok(Ok(Ok(()))) => {}
            Ok(Ok(Err(error))) => tracing::warn!(%error, "the shared directory could not be synchronized"),
            Ok(Err(error)) => tracing::warn!(%error, "the shared directory could not be synchronized"),
            Err(_) => tracing::warn!("the shared directory was not synchronized in time"),
        }
    }
}
