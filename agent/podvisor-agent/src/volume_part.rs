//! Parts of the guest's own volumes, and names of such volumes.
//!
//! Containers are hostile to each other. Looking up a part of a volume never leaves the volume, whatever
//! links it has.

use std::fs::{self, Permissions};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use proto_agent::agent::FileAccess;
use rustix::fs::{AtFlags, CWD, FileType, Gid, Mode, OFlags, ResolveFlags, Uid, chownat, mkdirat, openat2};
use rustix::io::Errno;

/// Longest name of a volume.
pub(crate) const NAME_BYTES_MAX: usize = 64;

/// Returns true if a volume may have this name. Its directory in the guest has the same name.
pub(crate) fn is_name(name: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    !name.is_empty() && name.len() <= NAME_BYTES_MAX && name.bytes().all(plain)
}

/// Opens a directory or a regular file below `root`. Makes missing directories.
pub(crate) fn open_part(root: &Path, sub_path: &str, access: &FileAccess) -> io::Result<OwnedFd> {
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

/// Makes a directory. It is not accessible before it has its owner.
fn make_directory(parent: &OwnedFd, name: &str, access: &FileAccess) -> io::Result<OwnedFd> {
    mkdirat(parent, name, Mode::empty())?;
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let made = rustix::fs::openat(parent, name, flags, Mode::empty())?;
    admit(&made, access)?;
    Ok(made)
}

/// Gives a new, inaccessible directory its owner, and then its mode. The mode makes it accessible.
pub(crate) fn admit(directory: &OwnedFd, access: &FileAccess) -> io::Result<()> {
    let owner = (Some(Uid::from_raw(access.uid)), Some(Gid::from_raw(access.gid)));
    chownat(directory, "", owner.0, owner.1, AtFlags::EMPTY_PATH)?;
    // Changing the owner clears setgid, so the mode comes last.
    let path = format!("/proc/self/fd/{}", directory.as_raw_fd());
    fs::set_permissions(path, Permissions::from_mode(access.mode & 0o7777))
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
}
