//! Paths hidden from a container or read-only for it (`maskedPaths` and `readonlyPaths` of the OCI runtime
//! specification). The process is already in its root, so paths mean the same as for the container. A missing
//! path needs nothing.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

use rustix::fs::{CWD, FileType, Mode, OFlags, fstat, openat};
use rustix::io::Errno;

use super::{mounts, nodes};
use crate::launch::Failure;
use crate::syscall;

const NULL: &str = "/dev/null";

/// Covers each of these paths: a file with the null device, a directory with an empty one.
pub(super) fn mask(paths: &[String]) -> Result<(), Failure> {
    for path in paths {
        let failed = |error: io::Error| Failure::at(format_args!("cannot mask {path}"), &error);
        let Some((place, is_directory)) = find(path).map_err(failed)? else { continue };
        let cover =
            if is_directory { mounts::new("tmpfs", "tmpfs", &[], libc::MOUNT_ATTR_RDONLY) } else { null() };
        cover.and_then(|cover| mounts::put(&cover, &place)).map_err(failed)?;
    }
    Ok(())
}

/// Makes each of these paths read-only, with all mounts below.
pub(super) fn protect(paths: &[String]) -> Result<(), Failure> {
    for path in paths {
        let failed = |error: io::Error| Failure::at(format_args!("cannot make {path} read-only"), &error);
        let Some((place, _)) = find(path).map_err(failed)? else { continue };
        protected(&place).map_err(failed)?;
    }
    Ok(())
}

fn protected(place: &OwnedFd) -> io::Result<()> {
    let mount = mounts::clone_opened(place, true)?;
    syscall::set_mount_attributes(mount.as_fd(), true, libc::MOUNT_ATTR_RDONLY, 0, 0)?;
    mounts::put(&mount, place)
}

/// The opened path, and whether it is a directory.
fn find(path: &str) -> io::Result<Option<(OwnedFd, bool)>> {
    match openat(CWD, path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty()) {
        Err(Errno::NOENT | Errno::NOTDIR) => Ok(None),
        found => {
            let found = found?;
            let is_directory = FileType::from_raw_mode(fstat(&found)?.st_mode).is_dir();
            Ok(Some((found, is_directory)))
        }
    }
}

/// A mount of the null device. A volume at `/dev` may have anything in its place.
fn null() -> io::Result<OwnedFd> {
    let mount = mounts::clone(Path::new(NULL), false)?;
    match nodes::is_null(&mount) {
        true => Ok(mount),
        false => Err(io::Error::other("/dev/null of the container is no null device")),
    }
}
