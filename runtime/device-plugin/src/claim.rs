//! The claim on a kubelet's directory: only one of our plugins serves there at a time. The lock is on the
//! directory itself, because old kubelets remove every file in it when they start. The kernel releases the
//! lock when its holder's process ends, however it ends.

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

/// Failure to claim a directory.
#[derive(Debug, thiserror::Error)]
pub enum ClaimError {
    /// Another plugin holds the directory.
    #[error("another podvisor device-plugin, {holder}, serves in {}", directory.display())]
    Held {
        /// The kubelet's directory.
        directory: PathBuf,
        /// Pid of the plugin holding it, or words if the pid is unknown.
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
    /// Claims the directory. Another plugin would serve on `socket`.
    ///
    /// # Errors
    /// Another plugin holds the directory, or it is missing or cannot be locked.
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

    /// Returns true if the claim is on the directory now at the path. A directory may be removed and created
    /// again, and a lock on the old one does not protect the new one.
    pub(crate) fn is_on(&self, directory: &Path) -> bool {
        let place = |metadata: std::fs::Metadata| (metadata.dev(), metadata.ino());
        match (self.locked.metadata(), directory.metadata()) {
            (Ok(locked), Ok(there)) => place(locked) == place(there),
            _ => false,
        }
    }
}

/// Names the process listening on the socket. The text is for people only.
async fn holder(socket: &Path) -> String {
    let pid = UnixStream::connect(socket).await.and_then(|stream| stream.peer_cred()).ok();
    match pid.and_then(|peer| peer.pid()) {
        Some(pid) => format!("pid {pid}"),
        None => "without a socket yet".into(),
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
        assert!(refused.contains("without a socket yet"), "{refused}");
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
