//! Directories of volumes on the node, their parts bound elsewhere by the kubelet, and whether they hold
//! anything. This module is read-only.

use std::fs;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};

use runtime_spec::FileAccess;
use rustix::fs::{AtFlags, CWD, Mode, OFlags, Statx, StatxAttributes, StatxFlags, openat, statx};
use rustix::io::Errno;

/// Most directories searched for files: a volume with more counts as non-empty.
const DIRECTORIES_MAX: usize = 256;

/// A part of a volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct VolumePart {
    /// Path in the volume.
    pub(crate) sub_path: String,
    pub(crate) access: FileAccess,
}

/// Opens a volume's directory, only for inspection; `None` if there is none.
pub(super) fn open(directory: &Path) -> io::Result<Option<(OwnedFd, Statx)>> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let opened = match openat(CWD, directory, flags, Mode::empty()) {
        Ok(opened) => opened,
        Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => return Ok(None),
        Err(errno) => return Err(errno.into()),
    };
    let root = statx(&opened, "", AtFlags::EMPTY_PATH, StatxFlags::BASIC_STATS | StatxFlags::MNT_ID)?;
    Ok(Some((opened, root)))
}

/// Whether something is mounted there.
pub(super) fn is_mount(root: &Statx) -> bool {
    root.stx_attributes.contains(StatxAttributes::MOUNT_ROOT)
}

pub(super) fn access(found: &Statx) -> FileAccess {
    let mode = u32::from(found.stx_mode) & 0o7777;
    FileAccess { mode, uid: found.stx_uid, gid: found.stx_gid }
}

/// The part of this volume bound to `place`; `None` if there is no such part.
pub(super) fn find(place: &Path, volume: &OwnedFd, root: &Statx) -> io::Result<Option<VolumePart>> {
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
    // The kernel's own name for it, independent of links.
    let directory = fs::read_link(format!("/proc/self/fd/{}", volume.as_raw_fd()))?;
    let mountinfo = fs::read_to_string("/proc/self/mountinfo")?;
    let sub_path = sub_path(&mountinfo, found.stx_mnt_id, root.stx_mnt_id, &directory);
    Ok(sub_path.map(|sub_path| VolumePart { sub_path, access: access(&found) }))
}

/// Path shown by the mount `part`, below `directory` on the mount `whole`.
fn sub_path(mountinfo: &str, part: u64, whole: u64, directory: &Path) -> Option<String> {
    let (volume, mounted_at) = shown(mountinfo, whole)?;
    let volume = volume.join(directory.strip_prefix(mounted_at).ok()?);
    let (part, _) = shown(mountinfo, part)?;
    Some(part.strip_prefix(volume).ok()?.to_str()?.to_owned())
}

/// The directory shown by a mount, in its file system, and the mount point (proc_pid_mountinfo(5)). `None`
/// for a removed directory.
fn shown(mountinfo: &str, mount_id: u64) -> Option<(PathBuf, PathBuf)> {
    let mut lines = mountinfo.lines().map(|line| line.split(' '));
    let mut fields = lines.find(|fields| fields.clone().next() == Some(mount_id.to_string().as_str()))?;
    let (root, place) = (unescaped(fields.nth(3)?)?, unescaped(fields.next()?)?);
    (!root.ends_with("//deleted")).then(|| (root.into(), place.into()))
}

/// A field of mountinfo, with blanks, line ends and backslashes in octal.
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

/// Whether there is anything but directories, and files with these names at the top.
pub(super) fn holds_files(directory: &Path, but: &[&str]) -> io::Result<bool> {
    let mut left = vec![directory.to_owned()];
    let mut seen = 0;
    while let Some(place) = left.pop() {
        seen += 1;
        for entry in fs::read_dir(&place)? {
            let entry = entry?;
            if place == directory && but.iter().any(|name| entry.file_name() == *name) {
                continue;
            }
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
    fn directories_alone_are_nothing_that_could_be_lost() {
        let dir = tempfile::tempdir().unwrap();
        assert!(!holds_files(dir.path(), &[]).unwrap());
        fs::create_dir_all(dir.path().join("a/b")).unwrap();
        fs::create_dir_all(dir.path().join("c")).unwrap();
        assert!(!holds_files(dir.path(), &[]).unwrap());
        fs::write(dir.path().join("mine"), "").unwrap();
        assert!(!holds_files(dir.path(), &["mine"]).unwrap());
        assert!(holds_files(dir.path(), &[]).unwrap());
        std::os::unix::fs::symlink("nowhere", dir.path().join("a/b/mine")).unwrap();
        assert!(holds_files(dir.path(), &["mine"]).unwrap());
    }

    #[test]
    fn a_volume_of_countless_directories_counts_as_one_that_holds_something() {
        let dir = tempfile::tempdir().unwrap();
        for number in 0..DIRECTORIES_MAX {
            fs::create_dir(dir.path().join(number.to_string())).unwrap();
        }
        assert!(holds_files(dir.path(), &[]).unwrap());
    }

    #[test]
    fn the_part_of_a_volume_that_a_mount_shows_is_read_from_the_table() {
        let table = "\
            21 1 8:1 / / rw shared:1 - ext4 /dev/sda1 rw\n\
            22 21 8:2 /@data /k rw shared:1 - btrfs /dev/sda2 rw\n\
            97 22 0:52 / /k/pods/u/volumes/kubernetes.io~empty-dir/m rw shared:2 - tmpfs tmpfs rw,size=4k\n\
            98 22 0:52 /with\\040blank/b /k/pods/u/volume-subpaths/m/c/0 rw shared:2 - tmpfs tmpfs rw\n\
            99 22 0:52 /gone//deleted /k/pods/u/volume-subpaths/m/c/1 rw - tmpfs tmpfs rw\n\
            100 22 8:2 /@data/pods/u/volumes/d/a/b /k/pods/u/volume-subpaths/d/c/0 rw - btrfs /dev/sda2 rw\n\
            101 22 8:2 /@data/pods/other/a /k/pods/u/volume-subpaths/d/c/1 rw - btrfs /dev/sda2 rw\n";
        let memory = Path::new("/k/pods/u/volumes/kubernetes.io~empty-dir/m");
        assert_eq!(sub_path(table, 98, 97, memory).as_deref(), Some("with blank/b"));
        assert_eq!(sub_path(table, 97, 97, memory).as_deref(), Some(""));
        assert_eq!(sub_path(table, 99, 97, memory), None);
        assert_eq!(sub_path(table, 9, 97, memory), None);
        let disk = Path::new("/k/pods/u/volumes/d");
        assert_eq!(sub_path(table, 100, 22, disk).as_deref(), Some("a/b"));
        assert_eq!(sub_path(table, 101, 22, disk), None, "a part of another volume");
        assert_eq!(unescaped("\\0"), None);
    }
}
