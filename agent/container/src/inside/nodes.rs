//! The container's `/dev`: device nodes, and the standard links (OCI runtime specification, "Default Devices"
//! and "Dev symbolic links").
//!
//! A user namespace allows no new nodes. The guest's own are mounted there instead.

use std::ffi::OsStr;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

use oci_spec::runtime::{LinuxDevice, LinuxDeviceType};
use rustix::fs::{
    AtFlags, FileType, Gid, Mode, OFlags, Uid, chownat, fstat, makedev, mknodat, openat, symlinkat,
};
use rustix::io::Errno;
use rustix::process::umask;

use super::mounts;
use super::place::{self, Kind};
use crate::launch::Failure;

/// Name, major and minor of every container's nodes.
const DEFAULT: [(&str, u32, u32); 6] =
    [("null", 1, 3), ("zero", 1, 5), ("full", 1, 7), ("random", 1, 8), ("urandom", 1, 9), ("tty", 5, 0)];

const LINKS: [(&str, &str); 6] = [
    ("ptmx", "pts/ptmx"),
    ("fd", "/proc/self/fd"),
    ("stdin", "/proc/self/fd/0"),
    ("stdout", "/proc/self/fd/1"),
    ("stderr", "/proc/self/fd/2"),
    ("core", "/proc/kcore"),
];

/// Makes nodes and links. Files that a mount has already put there stay.
pub(super) fn make(root: &OwnedFd, devices: &[LinuxDevice], in_user_namespace: bool) -> Result<(), Failure> {
    let failed = |path: &Path, error: io::Error| {
        Failure::at(format_args!("cannot make the device {}", path.display()), &error)
    };
    let dev = Path::new("/dev");
    let directory = place::make(root, dev, Kind::Directory).map_err(|error| failed(dev, error))?.fd;
    for (name, major, minor) in DEFAULT {
        let made = match in_user_namespace {
            true => bind(&directory, OsStr::new(name), &dev.join(name)),
            false => {
                node(&directory, OsStr::new(name), FileType::CharacterDevice, (major, minor), 0o666).map(drop)
            }
        };
        made.map_err(|error| failed(&dev.join(name), error))?;
    }
    for device in devices {
        listed(root, device, in_user_namespace).map_err(|error| failed(device.path(), error))?;
    }
    for (name, target) in LINKS {
        match symlinkat(target, &directory, name) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(errno) => return Err(failed(&dev.join(name), errno.into())),
        }
    }
    Ok(())
}

/// A device listed in the specification.
fn listed(root: &OwnedFd, device: &LinuxDevice, in_user_namespace: bool) -> io::Result<()> {
    let (parent, name) = place::parent(root, device.path())?;
    if in_user_namespace {
        return bind(&parent.fd, name, device.path());
    }
    let kind = match device.typ() {
        LinuxDeviceType::B => FileType::BlockDevice,
        LinuxDeviceType::P => FileType::Fifo,
        LinuxDeviceType::C | LinuxDeviceType::U => FileType::CharacterDevice,
        LinuxDeviceType::A => return Err(io::ErrorKind::InvalidInput.into()),
    };
    let number = |number: i64| u32::try_from(number).map_err(io::Error::other);
    let numbers = (number(device.major())?, number(device.minor())?);
    let made = node(&parent.fd, name, kind, numbers, device.file_mode().unwrap_or(0o666))?;
    let owner = (device.uid().unwrap_or(0), device.gid().unwrap_or(0));
    if let Some(made) = made
        && owner != (0, 0)
    {
        let (uid, gid) = (Uid::from_raw(owner.0), Gid::from_raw(owner.1));
        chownat(&made, c"", Some(uid), Some(gid), AtFlags::EMPTY_PATH)?;
    }
    Ok(())
}

/// Makes a node and returns it. `None` if the name exists: it may be a file of a volume, and stays as it is.
/// The directory may belong to a volume, too, where another container renames files meanwhile. So nothing
/// is changed by name after the node is made.
fn node(
    parent: &OwnedFd,
    name: &OsStr,
    kind: FileType,
    numbers: (u32, u32),
    mode: u32,
) -> io::Result<Option<OwnedFd>> {
    let number = makedev(numbers.0, numbers.1);
    let mask = umask(Mode::empty());
    let made = mknodat(parent.as_fd(), name, kind, Mode::from_raw_mode(mode & 0o7777), number);
    umask(mask);
    match made {
        Err(Errno::EXIST) => return Ok(None),
        made => made?,
    }
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let node = openat(parent, name, flags, Mode::empty())?;
    let found = fstat(&node)?;
    let is_other =
        FileType::from_raw_mode(found.st_mode) != kind || (kind != FileType::Fifo && found.st_rdev != number);
    if is_other { Err(io::Error::other("it was replaced while it was made")) } else { Ok(Some(node)) }
}

/// Mounts the guest's own node.
fn bind(parent: &OwnedFd, name: &OsStr, of_guest: &Path) -> io::Result<()> {
    let flags = OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::WRONLY;
    match openat(parent, name, flags, Mode::from_raw_mode(0o666)) {
        Err(Errno::EXIST) => return Ok(()),
        made => drop(made?),
    }
    let file = openat(parent, name, OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty())?;
    mounts::put(&mounts::clone(of_guest, false)?, &file)
}

/// Returns true for the null device, by any name.
pub(super) fn is_null(file: &OwnedFd) -> bool {
    fstat(file).is_ok_and(|stat| {
        let is_device = FileType::from_raw_mode(stat.st_mode).is_char_device();
        is_device && stat.st_rdev == makedev(1, 3)
    })
}

#[cfg(test)]
mod tests {
    use std::fs::{self, File};
    use std::os::unix::fs::{PermissionsExt as _, symlink};

    use super::*;

    fn fifo(parent: &OwnedFd, name: &str, mode: u32) -> Option<OwnedFd> {
        node(parent, OsStr::new(name), FileType::Fifo, (0, 0), mode).unwrap()
    }

    #[test]
    fn a_node_has_its_mode_whatever_the_mask_and_what_exists_stays() {
        let dir = tempfile::tempdir().unwrap();
        let parent = OwnedFd::from(File::open(dir.path()).unwrap());
        let mode = |name: &str| fs::metadata(dir.path().join(name)).unwrap().permissions().mode() & 0o7777;
        let mask = umask(Mode::from_raw_mode(0o077));
        assert!(fifo(&parent, "made", 0o666).is_some());
        assert_eq!(umask(mask), Mode::from_raw_mode(0o077), "the mask is as before");
        assert_eq!(mode("made"), 0o666);
        fs::write(dir.path().join("target"), "").unwrap();
        fs::set_permissions(dir.path().join("target"), fs::Permissions::from_mode(0o600)).unwrap();
        symlink("target", dir.path().join("link")).unwrap();
        for name in ["target", "link"] {
            assert!(fifo(&parent, name, 0o666).is_none());
        }
        assert_eq!(mode("target"), 0o600);
    }
}
