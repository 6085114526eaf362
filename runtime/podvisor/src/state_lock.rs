//! The lock of a state directory: only one daemon at a time may use it. The kernel releases the lock with its
//! owner's process, however the process ends. This module reads and writes nothing else in the directory.

use std::fs::{self, File, TryLockError};
use std::io::{Seek, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use runtime_fail_points::{Point, pass};

/// Permissions of the directory.
const MODE: u32 = 0o700;

/// Name of the directory's lock file. It holds the pid of its latest owner.
const FILE: &str = "lock";

/// The held lock, released when dropped.
#[derive(Debug)]
pub(crate) struct StateLock {
    _file: File,
}

/// A state directory that cannot be used now.
#[derive(Debug, thiserror::Error)]
pub(crate) enum StateLockError {
    #[error("another daemon, pid {pid}, has the state in {}", directory.display())]
    Held { directory: PathBuf, pid: String },
    #[error("cannot lock the state in {}", directory.display())]
    Disk { directory: PathBuf, source: std::io::Error },
}

impl StateLock {
    /// Locks the directory. Creates it if it is missing. From then on only root can look into it.
    ///
    /// # Errors
    /// Another process has the lock, or the lock's file cannot be created.
    pub(crate) fn take(directory: &Path) -> Result<StateLock, StateLockError> {
        let disk = |source| StateLockError::Disk { directory: directory.to_owned(), source };
        pass(Point::ServeLock).and_then(|()| fs::create_dir_all(directory)).map_err(disk)?;
        close(directory).map_err(disk)?;
        let path = directory.join(FILE);
        let mut file =
            File::options().read(true).write(true).create(true).truncate(false).open(&path).map_err(disk)?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                let pid = fs::read_to_string(&path).unwrap_or_default().trim().to_owned();
                return Err(StateLockError::Held { directory: directory.to_owned(), pid });
            }
            Err(TryLockError::Error(source)) => return Err(disk(source)),
        }
        // The pid only helps people. It always has ten digits, so the next one fits even on a full disk.
        let written = file.rewind().and_then(|()| writeln!(file, "{:>10}", std::process::id()));
        if let Err(error) = written {
            tracing::warn!(path = %path.display(), %error, "the daemon's pid is not in its lock");
        }
        Ok(StateLock { _file: file })
    }

    /// Whether another process has the directory's lock. Creates nothing.
    ///
    /// # Errors
    /// The lock's file cannot be read.
    pub(crate) fn is_held(directory: &Path) -> std::io::Result<bool> {
        is_locked(&directory.join(FILE))
    }
}

/// Closes the directory to all but its owner: it has the variables of all containers, and the files of all
/// images. An earlier version left it open.
fn close(directory: &Path) -> std::io::Result<()> {
    fs::set_permissions(directory, fs::Permissions::from_mode(MODE))
}

/// Whether another process has locked the file. The lock is tried and released at once. An attempt by another
/// process in this very moment fails.
pub(crate) fn is_locked(path: &Path) -> std::io::Result<bool> {
    let file = match File::open(path) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(false),
        opened => opened?,
    };
    match file.try_lock_shared() {
        Ok(()) => Ok(false),
        Err(TryLockError::WouldBlock) => Ok(true),
        Err(TryLockError::Error(error)) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_daemon_is_refused_with_the_firsts_pid_until_the_first_has_ended() {
        let dir = tempfile::tempdir().unwrap();
        let state = dir.path().join("state");
        let first = StateLock::take(&state).unwrap();
        assert!(StateLock::is_held(&state).unwrap() && !StateLock::is_held(dir.path()).unwrap());
        let refused = StateLock::take(&state).unwrap_err().to_string();
        assert!(refused.contains(&format!("pid {},", std::process::id())), "{refused}");
        assert!(refused.contains(&state.display().to_string()), "{refused}");
        drop(first);
        // The state of an earlier version is closed, too.
        fs::set_permissions(&state, fs::Permissions::from_mode(0o755)).unwrap();
        assert!(!StateLock::is_held(&state).unwrap());
        StateLock::take(&state).unwrap();
        assert_eq!(fs::metadata(&state).unwrap().permissions().mode() & 0o777, 0o700);
    }
}
