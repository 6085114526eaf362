//! Volumes in memory, as mounted by the kubelet: a tmpfs of its own at the place of an empty-dir volume
//! (kubelet `pkg/volume/emptydir/empty_dir.go`). This module is read-only.

use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use runtime_spec::{KubeletPath, MemoryVolume, VolumeLimits, VolumePlugin};
use rustix::fs::{Statx, fstatfs};

use super::part::{self, VolumePart, access};

/// Type of a tmpfs (`TMPFS_MAGIC`, include/uapi/linux/magic.h).
const TMPFS_MAGIC: u64 = 0x0102_1994;

/// A volume in memory, as it is on the node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct MemoryFound {
    /// The volume's directory.
    pub(crate) directory: PathBuf,
    pub(crate) volume: MemoryVolume,
    /// Whether there is anything but directories made by the kubelet for sub paths.
    pub(crate) holds_files: bool,
    /// The requested part; `None` for the whole volume.
    pub(crate) part: Option<VolumePart>,
}

/// Finds the kubelet's memory volume at this path, if there is one.
///
/// # Errors
/// The kernel refused.
pub(crate) fn find(path: &KubeletPath) -> io::Result<Option<MemoryFound>> {
    let Some(directory) = path.directory(VolumePlugin::EmptyDir) else { return Ok(None) };
    let Some((opened, root)) = open(&directory)? else { return Ok(None) };
    let part = match path.sub_path() {
        None => None,
        Some(place) => match part::find(place, &opened, &root)? {
            None => return Ok(None),
            part => part,
        },
    };
    let volume = MemoryVolume { limits: limits_of(&opened)?, access: access(&root) };
    let holds_files = part::holds_files(&directory, &[])?;
    Ok(Some(MemoryFound { directory, volume, holds_files, part }))
}

/// The volume's current limits; `None` if it is gone.
///
/// # Errors
/// The kernel refused.
pub(crate) fn limits(directory: &Path) -> io::Result<Option<VolumeLimits>> {
    open(directory)?.map(|(opened, _)| limits_of(&opened)).transpose()
}

/// Opens the directory, if a tmpfs is mounted there.
fn open(directory: &Path) -> io::Result<Option<(OwnedFd, Statx)>> {
    let Some((opened, root)) = part::open(directory)? else { return Ok(None) };
    let kind = u64::try_from(fstatfs(&opened)?.f_type).unwrap_or_default();
    Ok((part::is_mount(&root) && kind == TMPFS_MAGIC).then_some((opened, root)))
}

fn limits_of(opened: &OwnedFd) -> io::Result<VolumeLimits> {
    let found = fstatfs(opened)?;
    let block_bytes = u64::try_from(found.f_bsize).unwrap_or_default();
    Ok(VolumeLimits { bytes: found.f_blocks.saturating_mul(block_bytes), inodes: found.f_files })
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn a_directory_that_is_no_mount_of_memory_is_no_memory_volume() {
        let dir = tempfile::tempdir().unwrap();
        let directory = dir.path().join("pods/u/volumes/kubernetes.io~empty-dir/data");
        fs::create_dir_all(&directory).unwrap();
        let path = KubeletPath::of("u", directory.to_str().unwrap()).unwrap();
        assert_eq!(find(&path).unwrap(), None);
        assert_eq!(limits(&directory).unwrap(), None);
        fs::remove_dir(&directory).unwrap();
        assert_eq!(find(&path).unwrap(), None);
        // A directory below a mount of memory, and a link to one.
        fs::create_dir_all("/dev/shm").unwrap();
        std::os::unix::fs::symlink("/dev/shm", &directory).unwrap();
        assert_eq!(find(&path).unwrap(), None);
        let below = tempfile::tempdir_in("/dev/shm").unwrap();
        assert_eq!(limits(below.path()).unwrap(), None);
    }

    #[test]
    fn a_mount_of_memory_has_its_bounds_and_its_access() {
        // A memory mount present on every host.
        let Some((_, root)) = open(Path::new("/dev/shm")).unwrap() else {
            eprintln!("skipped: /dev/shm is no tmpfs here");
            return;
        };
        let said = rustix::fs::statvfs("/dev/shm").unwrap();
        let found = limits(Path::new("/dev/shm")).unwrap().unwrap();
        assert_eq!(found.bytes, said.f_blocks * said.f_frsize);
        assert_eq!(found.inodes, said.f_files);
        assert_eq!(access(&root).mode & 0o1000, 0o1000);
    }
}
