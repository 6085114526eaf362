//! The pod's shared directory: the host's files for containers' mounts, over virtio-fs. It is mounted for the
//! first container with such a mount, so that other pods pay nothing. The host binds its files there
//! (`runtime/share`).
//!
//! Pages written through mapped memory reach the host later than the program's end. So the directory is
//! synced before an exit is reported.
//!
//! Everything here runs outside of the agent's own thread ([`crate::host_work`]), because one hanging volume
//! of the host blocks every thread touching the directory.

use std::fs::{self, File};
use std::io;
use std::sync::Arc;
use std::time::Duration;

use nix::mount::{MntFlags, MsFlags};
use proto_agent::{SHARE_TAG, guest_path};
use tokio::sync::Mutex;
use tokio::time::timeout;

use crate::host_work::{HostWork, HostWorkError};

/// Timeout of the host's files in one step of a container's creation.
pub(crate) const ANSWER: Duration = Duration::from_secs(30);
/// Timeout for the host to write data still in the guest's memory. After it a container's end is reported
/// anyway: a hanging disk must not keep containers from ending.
const SYNC: Duration = Duration::from_secs(30);

/// The step of [`Shared::mount`] in error messages.
const MOUNT: &str = "mount the pod's shared directory";

/// Why the shared directory could not be mounted.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SharedError {
    #[error("cannot make {}", guest_path::SHARED)]
    Directory(#[source] io::Error),
    #[error("cannot mount the pod's shared directory, {SHARE_TAG}")]
    Mount(#[source] nix::Error),
    #[error("cannot open the pod's shared directory")]
    Open(#[source] io::Error),
    #[error(transparent)]
    HostWork(#[from] HostWorkError),
}

/// The shared directory, mounted or not. The mounting thread holds the lock.
#[derive(Debug, Default)]
pub(crate) struct Shared {
    root: Arc<Mutex<Option<Arc<File>>>>,
    /// For all work on the host's files.
    pub(crate) work: HostWork,
}

impl Shared {
    /// Mounts the directory, unless it is mounted.
    pub(crate) async fn mount(&self) -> Result<(), SharedError> {
        let root = timeout(ANSWER, Arc::clone(&self.root).lock_owned()).await;
        let mut root = root.map_err(|_| HostWorkError::Hung { what: MOUNT, within: ANSWER })?;
        if root.is_some() {
            return Ok(());
        }
        let mounting = move || mount().map(|opened| *root = Some(Arc::new(opened)));
        self.work.run(MOUNT, ANSWER, mounting).await?
    }

    /// Sends data written through memory mappings to the host. Data written by system calls is already there.
    pub(crate) async fn sync(&self) {
        let syncing = async {
            let Some(root) = self.root.lock().await.clone() else { return Ok(Ok(())) };
            self.work
                .run("synchronize the pod's shared directory", SYNC, move || rustix::fs::syncfs(&*root))
                .await
        };
        match timeout(SYNC, syncing).await {
            Ok(Ok(Ok(()))) => {}
            Ok(Ok(Err(error))) => tracing::warn!(%error, "the shared directory could not be synchronized"),
            Ok(Err(error)) => tracing::warn!(%error, "the shared directory could not be synchronized"),
            Err(_) => tracing::warn!("the shared directory was not synchronized in time"),
        }
    }
}

/// Mounts and opens the directory.
fn mount() -> Result<File, SharedError> {
    fs::create_dir_all(guest_path::SHARED).map_err(SharedError::Directory)?;
    // The host's device numbers mean other devices here.
    let flags = MsFlags::MS_NODEV;
    nix::mount::mount(Some(SHARE_TAG), guest_path::SHARED, Some("virtiofs"), flags, None::<&str>)
        .map_err(SharedError::Mount)?;
    File::open(guest_path::SHARED).map_err(|error| {
        // Otherwise the next container would mount the directory again.
        let _ = nix::mount::umount2(guest_path::SHARED, MntFlags::MNT_DETACH);
        SharedError::Open(error)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_mount_that_hangs_keeps_others_from_mounting_twice_and_no_longer_than_the_bound() {
        let shared = Shared::default();
        let _hanging = shared.root.lock().await;
        let error = shared.mount().await.unwrap_err();
        assert!(matches!(error, SharedError::HostWork(HostWorkError::Hung { .. })), "{error}");
        shared.sync().await;
    }
}
