//! Volumes in memory, as the kubelet mounts them: a tmpfs of its own at the place of an empty-dir volume (kubelet
//! `pkg/volume/emptydir/empty_dir.go`). This module only looks.

use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use runtime_spec::{FileAccess, KubeletPath, MemoryVolume, VolumeLimits, VolumePlugin};
use rustix::fs::{AtFlags, CWD, Mode, OFlags, Statx, StatxAttributes, StatxFlags, fstatfs, openat, statx};
use rustix::io::Errno;

/// Type of a tmpfs (`TMPFS_MAGIC`, include/uapi/linux/magic.h).
const TMPFS_MAGIC: u64 = 0x0102_1994;

/// Directories that are looked through for files: a volume with more holds something.
const DIRECTORIES_MAX: usize = 256;

/// A volume in memory, as it is on the node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct MemoryFound {
    /// The volume's directory.
    pub(crate) directory: PathBuf,
    pub(crate) volume: MemoryVolume,
    /// Whether there is anything but directories, which the kubelet makes for sub paths.
    pub(crate) holds_files: bool,
    /// The part that is asked for; `None` for the whole volume.
    pub(crate) part: Option<MemoryPart>,
}

/// A part of a volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct MemoryPart {
    /// Path in the volume.
    pub(crate) sub_path: String,
    pub(crate) access: FileAccess,
}

/// Finds the volume in memory that the kubelet has at this path, if it has one there.
///
/// # Errors
/// The kernel's refusal.
pub(crate) fn find(path: &KubeletPath) -> io::Result<Option<MemoryFound>> {
    let Some(directory) = path.directory(VolumePlugin::EmptyDir) else { return Ok(None) };
    let Some((opened, root)) = open(&directory)? else { return Ok(None) };
    let part = match path.sub_path() {
        None => None,
        Some(place) => match find_part(place, &root)? {
            None => return Ok(None),
            part => part,
        },
    };
    let volume = MemoryVolume { limits: limits_of(&opened)?, access: access(&root) };
    let holds_files = holds_files(&directory)?;
    Ok(Some(MemoryFound { directory, volume, holds_files, part }))
}

/// The bounds that the volume has now; `None` where there is none any more.
///
/// # Errors
/// The kernel's refusal.
pub(crate) fn limits(directory: &Path) -> io::Result<Option<VolumeLimits>> {
    open(directory)?.map(|(opened, _)| limits_of(&opened)).transpose()
}

/// Opens the directory, if a tmpfs is mounted there.
fn open(directory: &Path) -> io::Result<Option<(OwnedFd, Statx)>> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let opened = match openat(CWD, directory, flags, Mode::empty()) {
        Ok(opened) => opened,
        Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => return Ok(None),
        Err(errno) => return Err(errno.into()),
    };
    let root = statx(&opened, "", AtFlags::EMPTY_PATH, StatxFlags::BASIC_STATS | StatxFlags::MNT_ID)?;
    let kind = u64::try_from(fstatfs(&opened)?.f_type).unwrap_or_default();
    let mounted = root.stx_attributes.contains(StatxAttributes::MOUNT_ROOT);
    Ok((mounted && kind == TMPFS_MAGIC).then_some((opened, root)))
}

fn limits_of(opened: &OwnedFd) -> io::Result<VolumeLimits> {
    let found = fstatfs(opened)?;
    let block_bytes = u64::try_from(found.f_bsize).unwrap_or_default();
    Ok(VolumeLimits { bytes: found.f_blocks.saturating_mul(block_bytes), inodes: found.f_files })
}

fn access(found: &Statx) -> FileAccess {
    let mode = u32::from(found.stx_mode) & 0o7777;
    FileAccess { mode, uid: found.stx_uid, gid: found.stx_gid }
}

/// The part of the volume that is bound to `place`; `None` where it is no part of the volume.
fn find_part(place: &Path, root: &Statx) -> io::Result<Option<MemoryPart>> {
    let found =
        match statx(CWD, place, AtFlags::SYMLINK_NOFOLLOW, StatxFlags::BASIC_STATS | StatxFlags::MNT_ID) {
            Ok(found) => found,
            Err(Errno::NOENT | Errno::NOTDIR) => return Ok(None),
            Err(errno) => return Err(errno.into()),
        };
    let device = |found: &Statx| (found.stx_dev_major, found.stx_dev_minor);
    if device(&found) != device(root) {
        return Ok(None);
    }
    let mountinfo = fs::read_to_string("/proc/self/mountinfo")?;
    let part = root_of(&mountinfo, found.stx_mnt_id);
    Ok(part.map(|sub_path| MemoryPart { sub_path, access: access(&found) }))
}

/// The directory of its file system that a mount shows, without a slash before it (proc_pid_mountinfo(5)). A directory that
/// was removed has none.
fn root_of(mountinfo: &str, mount_id: u64) -> Option<String> {
    let mut lines = mountinfo.lines().map(|line| line.split(' '));
    let mut fields = lines.find(|fields| fields.clone().next() == Some(mount_id.to_string().as_str()))?;
    let root = unescaped(fields.nth(3)?)?;
    if root.ends_with("//deleted") {
        return None;
    }
    root.strip_prefix('/').map(str::to_owned)
}

/// A field of mountinfo, in which blanks, line ends and backslashes are octal.
fn unescaped(field: &str) -> Option<String> {
    let mut bytes = Vec::new();
    let mut rest = field.as_bytes();
    while let Some((&byte, after)) = rest.split_first() {
        rest = after;
        if byte != b'\\' {
            bytes.push(byte);
            continue;
        }
        let (digits, after) = rest.split_at_checked(3)?;
        bytes.push(u8::from_str_radix(std::str::from_utf8(digits).ok()?, 8).ok()?);
        rest = after;
    }
    String::from_utf8(bytes).ok()
}

/// Whether there is anything but directories.
fn holds_files(directory: &Path) -> io::Result<bool> {
    let mut left = vec![directory.to_owned()];
    let mut seen = 0;
    while let Some(directory) = left.pop() {
        seen += 1;
        for entry in fs::read_dir(directory)? {
            let entry = entry?;
            if !entry.file_type()?.is_dir() || seen + left.len() >= DIRECTORIES_MAX {
                return Ok(true);
            }
            left.push(entry.path());
        }
    }
    Ok(false)
}

#[cfg(test)]
mod tests {
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
        // A mount of memory that every host has.
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

    #[test]
    fn directories_alone_are_nothing_that_could_be_lost() {
        let dir = tempfile::tempdir().unwrap();
        assert!(!holds_files(dir.path()).unwrap());
        fs::create_dir_all(dir.path().join("a/b")).unwrap();
        fs::create_dir_all(dir.path().join("c")).unwrap();
        assert!(!holds_files(dir.path()).unwrap());
        std::os::unix::fs::symlink("nowhere", dir.path().join("a/b/link")).unwrap();
        assert!(holds_files(dir.path()).unwrap());
    }

    #[test]
    fn a_volume_of_countless_directories_counts_as_one_that_holds_something() {
        let dir = tempfile::tempdir().unwrap();
        for number in 0..DIRECTORIES_MAX {
            fs::create_dir(dir.path().join(number.to_string())).unwrap();
        }
        assert!(holds_files(dir.path()).unwrap());
    }

    #[test]
    fn the_part_of_a_volume_that_a_mount_shows_is_read_from_the_table() {
        let table = "\
            21 1 8:1 / / rw shared:1 - ext4 /dev/sda1 rw\n\
            97 21 0:52 / /k/pods/u/volumes/kubernetes.io~empty-dir/m rw shared:2 - tmpfs tmpfs rw,size=4k\n\
            98 21 0:52 /with\\040blank/b /k/pods/u/volume-subpaths/m/c/0 rw shared:2 - tmpfs tmpfs rw\n\
            99 21 0:52 /gone//deleted /k/pods/u/volume-subpaths/m/c/1 rw - tmpfs tmpfs rw\n";
        assert_eq!(root_of(table, 98).as_deref(), Some("with blank/b"));
        assert_eq!(root_of(table, 97).as_deref(), Some(""));
        assert_eq!(root_of(table, 99), None);
        assert_eq!(root_of(table, 9), None);
        assert_eq!(unescaped("\\0"), None);
    }
}
