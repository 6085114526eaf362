//! The claim on a kubelet's directory: one plugin of ours at a time serves there. The lock is on the directory itself,
//! because old kubelets remove every file in it when they start. The kernel releases the lock with its holder's
//! process, however that ends.

use std::fs::{File, TryLockError};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use tokio::net::UnixStream;

/// The held lock, released when dropped.
#[derive(Debug)]
pub(crate) struct Claim {
    locked: File,
}

/// A directory that cannot be claimed.
#[derive(Debug, thiserror::Error)]
pub enum ClaimError {
    /// The directory is another plugin's.
    #[error("another podvisor device-plugin, {holder}, serves in {}", directory.display())]
    Held {
        /// The kubelet's directory.
        directory: PathBuf,
        /// Pid of the plugin that has it, or words for one that cannot be seen.
        holder: String,
    },
    /// The directory cannot be opened or locked.
    #[error("cannot lock {}", directory.display())]
    Disk {
        /// The kubelet's directory.
        directory: PathBuf,
        /// The reason.
        source: io::Error,
    },
}

impl Claim {
    /// Claims the directory. `socket` is where another plugin would serve.
    ///
    /// # Errors
    /// The directory is another plugin's, is not there, or cannot be locked.
    pub(crate) async fn take(directory: &Path, socket: &Path) -> Result<Claim, ClaimError> {
        let disk = |source| ClaimError::Disk { directory: directory.to_owned(), source };
        let locked = File::open(directory).map_err(disk)?;
        match locked.try_lock() {
            Ok(()) => Ok(Claim { locked }),
            Err(TryLockError::WouldBlock) => {
                Err(ClaimError::Held { directory: directory.to_owned(), holder: holder(socket).await })
            }
            Err(TryLockError::Error(source)) => Err(disk(source)),
        }
    }

    /// Whether the claim is on what the path leads to now. A directory may be removed and made anew, and a lock on the old one
    /// keeps nobody out of the new one.
    pub(crate) fn is_on(&self, directory: &Path) -> bool {
        let place = |metadata: std::fs::Metadata| (metadata.dev(), metadata.ino());
        match (self.locked.metadata(), directory.metadata()) {
            (Ok(locked), Ok(there)) => place(locked) == place(there),
            _ => false,
        }
    }
}

/// Names who listens on the socket. People alone read it.
async fn holder(socket: &Path) -> String {
    let pid = UnixStream::connect(socket).await.and_then(|stream| stream.peer_cred()).ok();
    match pid.and_then(|peer| peer.pid()) {
        Some(pid) => format!("pid {pid}"),
        None => "which has no socket yet".into(),
    }
}

#[cfg(test)]
mod tests {
    use tokio::net::UnixListener;

    use super::*;

    #[tokio::test]
    async fn a_second_claim_is_refused_with_the_firsts_pid_until_the_first_is_gone() {
        let dir = tempfile::tempdir().unwrap();
        let socket = dir.path().join("socket");
        let first = Claim::take(dir.path(), &socket).await.unwrap();
        let refused = Claim::take(dir.path(), &socket).await.unwrap_err().to_string();
        assert!(refused.contains("which has no socket yet"), "{refused}");
        let _listener = UnixListener::bind(&socket).unwrap();
        let refused = Claim::take(dir.path(), &socket).await.unwrap_err().to_string();
        assert!(refused.contains(&format!("pid {},", std::process::id())), "{refused}");
        drop(first);
        Claim::take(dir.path(), &socket).await.unwrap();
    }

    #[tokio::test]
    async fn a_claim_does_not_hold_for_a_directory_that_was_made_anew() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("device-plugins");
        std::fs::create_dir(&path).unwrap();
        let claim = Claim::take(&path, &path.join("socket")).await.unwrap();
        assert!(claim.is_on(&path));
        std::fs::rename(&path, dir.path().join("old")).unwrap();
        assert!(!claim.is_on(&path));
        std::fs::create_dir(&path).unwrap();
        assert!(!claim.is_on(&path));
        assert!(Claim::take(&path, &path.join("socket")).await.unwrap().is_on(&path));
    }
}
