//! Memory volumes: each a tmpfs of the guest's own, which the containers of the pod share and which lives as long as the
//! pod. Pages count for the containers that write them.
//!
//! Containers are hostile to each other: a part of a volume is looked up without leaving the volume, whatever links are
//! there.

use std::fs::{self, Permissions};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use nix::mount::MsFlags;
use proto_agent::agent::{FileAccess, MemoryVolume, VolumeLimits};
use rustix::fs::{AtFlags, CWD, FileType, Gid, Mode, OFlags, ResolveFlags, Uid, chownat, mkdirat, openat2};
use rustix::io::Errno;

/// Parent of the volumes' mount points.
const DIRECTORY: &str = "/run/podvisor/memory-volumes";
/// Volumes of one pod: as many as one container may have mounts.
const VOLUMES_MAX: usize = 512;
/// Longest name of a volume.
const NAME_BYTES_MAX: usize = 64;

/// Why a memory volume cannot be used.
#[derive(Debug, thiserror::Error)]
pub(crate) enum MemoryVolumeError {
    #[error("{0:?} is no name of a volume")]
    Name(String),
    #[error("the pod has no volume {0}")]
    Unknown(String),
    #[error("the pod has {VOLUMES_MAX} volumes in memory, and can have no more")]
    TooMany,
    #[error("cannot make a volume in memory")]
    Make(#[source] io::Error),
    #[error("cannot find the sub path {sub_path:?} in a volume")]
    SubPath { sub_path: String, source: io::Error },
    #[error("volume {volume} cannot have {bytes} bytes")]
    Resize { volume: String, bytes: u64, source: io::Error },
}

/// The pod's memory volumes, by name.
#[derive(Debug, Default)]
pub(crate) struct MemoryVolumes(Mutex<Vec<String>>);

impl MemoryVolumes {
    /// Opens a part of a volume; the volume, and a directory at `sub_path`, are made if they are not there.
    pub(crate) fn open(
        &self,
        name: &str,
        volume: &MemoryVolume,
        sub_path: &str,
        sub_access: &FileAccess,
    ) -> Result<OwnedFd, MemoryVolumeError> {
        let place = self.make(name, volume)?;
        open_part(&place, sub_path, sub_access)
            .map_err(|source| MemoryVolumeError::SubPath { sub_path: sub_path.to_owned(), source })
    }

    fn make(&self, name: &str, volume: &MemoryVolume) -> Result<PathBuf, MemoryVolumeError> {
        let place = place(name)?;
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if known.iter().any(|known| known == name) {
            return Ok(place);
        }
        if known.len() >= VOLUMES_MAX {
            return Err(MemoryVolumeError::TooMany);
        }
        fs::create_dir_all(&place).map_err(MemoryVolumeError::Make)?;
        let options = options(volume);
        nix::mount::mount(
            Some("memory-volume"),
            &place,
            Some("tmpfs"),
            MsFlags::MS_NODEV,
            Some(options.as_str()),
        )
        .map_err(|error| MemoryVolumeError::Make(error.into()))?;
        known.push(name.to_owned());
        Ok(place)
    }

    /// Gives a volume other bounds.
    pub(crate) fn resize(&self, name: &str, limits: &VolumeLimits) -> Result<(), MemoryVolumeError> {
        let place = place(name)?;
        let known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if !known.iter().any(|known| known == name) {
            return Err(MemoryVolumeError::Unknown(name.to_owned()));
        }
        let flags = MsFlags::MS_REMOUNT | MsFlags::MS_NODEV;
        let options = bounds(limits);
        nix::mount::mount(None::<&str>, &place, None::<&str>, flags, Some(options.as_str())).map_err(
            |error| MemoryVolumeError::Resize {
                volume: name.to_owned(),
                bytes: limits.bytes,
                source: error.into(),
            },
        )
    }
}

/// The mount point of a volume.
fn place(name: &str) -> Result<PathBuf, MemoryVolumeError> {
    let plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    if name.is_empty() || name.len() > NAME_BYTES_MAX || !name.bytes().all(plain) {
        return Err(MemoryVolumeError::Name(name.chars().take(NAME_BYTES_MAX).collect()));
    }
    Ok(Path::new(DIRECTORY).join(name))
}

/// Options of a volume's mount (tmpfs(5)).
fn options(volume: &MemoryVolume) -> String {
    let access = volume.access.clone().unwrap_or_default();
    let bounds = bounds(&volume.limits.clone().unwrap_or_default());
    format!("{bounds},mode={:o},uid={},gid={}", access.mode & 0o7777, access.uid, access.gid)
}

fn bounds(limits: &VolumeLimits) -> String {
    format!("size={},nr_inodes={}", limits.bytes, limits.inodes)
}

/// Opens a directory or a regular file below `root`; makes the directories that are not there.
fn open_part(root: &Path, sub_path: &str, access: &FileAccess) -> io::Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::CLOEXEC;
    let root = rustix::fs::openat(CWD, root, flags | OFlags::DIRECTORY | OFlags::NOFOLLOW, Mode::empty())?;
    if sub_path.is_empty() {
        return Ok(root);
    }
    let within = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
    match openat2(&root, sub_path, flags, Mode::empty(), within) {
        Ok(found) => return checked(found),
        Err(Errno::NOENT) => {}
        Err(errno) => return Err(errno.into()),
    }
    let mut place = root;
    for name in sub_path.split('/').filter(|name| !name.is_empty()) {
        place = match openat2(&place, name, flags, Mode::empty(), within) {
            Ok(found) => found,
            Err(Errno::NOENT) => make_directory(&place, name, access)?,
            Err(errno) => return Err(errno.into()),
        };
    }
    checked(place)
}

/// Makes a directory, which nobody may use before it has its owner.
fn make_directory(parent: &OwnedFd, name: &str, access: &FileAccess) -> io::Result<OwnedFd> {
    mkdirat(parent, name, Mode::empty())?;
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let made = rustix::fs::openat(parent, name, flags, Mode::empty())?;
    let owner = (Some(Uid::from_raw(access.uid)), Some(Gid::from_raw(access.gid)));
    chownat(&made, "", owner.0, owner.1, AtFlags::EMPTY_PATH)?;
    // Changing the owner takes setgid away, so the mode comes last.
    let path = format!("/proc/self/fd/{}", made.as_raw_fd());
    fs::set_permissions(path, Permissions::from_mode(access.mode & 0o7777))?;
    Ok(made)
}

fn checked(found: OwnedFd) -> io::Result<OwnedFd> {
    match FileType::from_raw_mode(rustix::fs::fstat(&found)?.st_mode) {
        FileType::Directory | FileType::RegularFile => Ok(found),
        _ => Err(io::Error::new(io::ErrorKind::InvalidInput, "neither a directory nor a file")),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{MetadataExt, symlink};

    use super::*;

    fn mine(mode: u32) -> FileAccess {
        let (uid, gid) = (nix::unistd::getuid().as_raw(), nix::unistd::getgid().as_raw());
        FileAccess { mode, uid, gid, ..FileAccess::default() }
    }

    fn inode(opened: &OwnedFd) -> u64 {
        rustix::fs::fstat(opened).unwrap().st_ino
    }

    #[test]
    fn a_part_that_is_not_there_is_made_as_asked_and_one_that_is_there_stays_as_it_is() {
        let dir = tempfile::tempdir().unwrap();
        let made = open_part(dir.path(), "a/b", &mine(0o2770)).unwrap();
        let metadata = fs::metadata(dir.path().join("a/b")).unwrap();
        assert_eq!((metadata.ino(), metadata.mode() & 0o7777), (inode(&made), 0o2770));
        let again = open_part(dir.path(), "a/b", &mine(0o700)).unwrap();
        assert_eq!(inode(&again), inode(&made));
        assert_eq!(fs::metadata(dir.path().join("a/b")).unwrap().mode() & 0o7777, 0o2770);
        fs::write(dir.path().join("a/file"), "").unwrap();
        let file = open_part(dir.path(), "a/file", &mine(0o700)).unwrap();
        assert_eq!(inode(&file), fs::metadata(dir.path().join("a/file")).unwrap().ino());
    }

    #[test]
    fn no_link_leads_out_of_a_volume() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().join("volume");
        fs::create_dir_all(root.join("inside")).unwrap();
        fs::create_dir(dir.path().join("outside")).unwrap();
        symlink(dir.path().join("outside"), root.join("absolute")).unwrap();
        symlink("../outside", root.join("upwards")).unwrap();
        symlink("inside", root.join("within")).unwrap();
        symlink("nowhere", root.join("dangling")).unwrap();
        for path in [
            "absolute",
            "absolute/new",
            "upwards",
            "upwards/new",
            "..",
            "../outside",
            "inside/../..",
            "dangling/x",
        ] {
            assert!(open_part(&root, path, &mine(0o700)).is_err(), "{path}");
        }
        assert_eq!(fs::read_dir(dir.path().join("outside")).unwrap().count(), 0);
        let within = open_part(&root, "within", &mine(0o700)).unwrap();
        assert_eq!(inode(&within), fs::metadata(root.join("inside")).unwrap().ino());
    }

    #[test]
    fn what_is_no_file_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let _socket = std::os::unix::net::UnixListener::bind(dir.path().join("socket")).unwrap();
        assert!(open_part(dir.path(), "socket", &mine(0o700)).is_err());
    }

    #[test]
    fn a_name_that_is_a_path_is_refused() {
        let volumes = MemoryVolumes::default();
        for name in ["", ".", "..", "a/b", "/etc", "A", "a\0b", &"a".repeat(65)] {
            let error = volumes.resize(name, &VolumeLimits::default()).unwrap_err();
            assert!(matches!(error, MemoryVolumeError::Name(_)), "{name:?}: {error}");
        }
        let error = volumes.resize("abc", &VolumeLimits::default()).unwrap_err();
        assert!(matches!(error, MemoryVolumeError::Unknown(_)), "{error}");
    }

    #[test]
    fn a_volume_has_the_bounds_and_the_access_of_the_hosts() {
        let limits = VolumeLimits { bytes: 65536, inodes: 100, ..VolumeLimits::default() };
        let access = FileAccess { mode: 0o42777, uid: 0, gid: 2000, ..FileAccess::default() };
        let volume = MemoryVolume {
            limits: Some(limits).into(),
            access: Some(access).into(),
            ..MemoryVolume::default()
        };
        assert_eq!(options(&volume), "size=65536,nr_inodes=100,mode=2777,uid=0,gid=2000");
    }
}
