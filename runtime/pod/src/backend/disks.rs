//! Block devices of the host.

use std::fmt::Debug;
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::path::PathBuf;

use async_trait::async_trait;
use runtime_blocking::Pool;
use rustix::fs::{CWD, FileType, Mode, OFlags, fstat, openat};
use rustix::io::Errno;

use super::error::{BackendError, BackendErrorKind};

/// Block devices of the host, by their paths.
#[async_trait]
pub(crate) trait Disks: Debug + Send + Sync {
    /// Opens a device, for writing too if `writable`.
    async fn open(&self, path: PathBuf, writable: bool) -> Result<HostDisk, BackendError>;
}

/// An open block device of the host.
#[derive(Debug)]
pub(crate) struct HostDisk {
    pub(crate) file: File,
    /// The device's number on the host.
    pub(crate) number: u64,
}

impl HostDisk {
    /// Names the device with this number, plugged in one of two ways.
    pub(crate) fn key(number: u64, writable: bool) -> String {
        format!("{number} {}", if writable { "rw" } else { "ro" })
    }
}

/// Why a device is not opened.
#[derive(Debug, thiserror::Error)]
pub(crate) enum DiskError {
    #[error("{}: no such device on the node", .0.display())]
    Missing(PathBuf),
    #[error("{}: a character device of the node's kernel does not reach into a VM; run the pod on a runtime behind Podvisor (upstream)", .0.display())]
    Character(PathBuf),
    #[error("{} is no device", .0.display())]
    NoDevice(PathBuf),
    #[error("{}: it is read-only on the node, and its permissions hold w", .0.display())]
    ReadOnly(PathBuf),
    #[error("cannot open {}", path.display())]
    Io { path: PathBuf, source: io::Error },
}

impl From<DiskError> for BackendError {
    fn from(error: DiskError) -> Self {
        let kind = match error {
            DiskError::Io { .. } => BackendErrorKind::Failed,
            _ => BackendErrorKind::Invalid,
        };
        BackendError::new(kind, error)
    }
}

/// The kernel's block devices. Opening runs beside the async threads: a device may be slow to answer.
#[derive(Debug)]
pub(crate) struct KernelDisks(pub(crate) Pool);

#[async_trait]
impl Disks for KernelDisks {
    async fn open(&self, path: PathBuf, writable: bool) -> Result<HostDisk, BackendError> {
        Ok(self.0.run(move || open(path, writable)).await??)
    }
}

fn open(path: PathBuf, writable: bool) -> Result<HostDisk, DiskError> {
    // O_PATH: opening a device of another kind may do something.
    let found = match openat(CWD, &path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty()) {
        Ok(found) => found,
        Err(Errno::NOENT | Errno::NOTDIR) => return Err(DiskError::Missing(path)),
        Err(errno) => return Err(DiskError::Io { path, source: errno.into() }),
    };
    let status = match fstat(&found) {
        Ok(status) => status,
        Err(errno) => return Err(DiskError::Io { path, source: errno.into() }),
    };
    match FileType::from_raw_mode(status.st_mode) {
        FileType::BlockDevice => {}
        FileType::CharacterDevice => return Err(DiskError::Character(path)),
        _ => return Err(DiskError::NoDevice(path)),
    }
    // Opens the same device as checked above.
    let link = format!("/proc/self/fd/{}", found.as_raw_fd());
    match File::options().read(true).write(writable).open(link) {
        Ok(file) => Ok(HostDisk { file, number: status.st_rdev }),
        Err(error) => match Errno::from_io_error(&error) {
            Some(Errno::ROFS | Errno::ACCESS | Errno::PERM) if writable => Err(DiskError::ReadOnly(path)),
            Some(Errno::NXIO | Errno::NOMEDIUM) => Err(DiskError::Missing(path)),
            _ => Err(DiskError::Io { path, source: error }),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_disk_is_refused_by_its_path() {
        let dir = tempfile::tempdir().unwrap();
        let missing = dir.path().join("missing");
        for (path, words) in [
            (PathBuf::from("/dev/null"), "/dev/null: a character device"),
            (dir.path().to_owned(), "is no device"),
            (missing, "missing: no such device"),
        ] {
            let error = BackendError::from(open(path, false).unwrap_err());
            assert_eq!(error.kind(), BackendErrorKind::Invalid);
            assert!(error.to_string().contains(words), "{error}");
        }
    }
}
