//! A pod's shared directory: the part of the host's files that its VM can reach, by mounts below it.
//!
//! The directory holds mount points only: what is mounted on them is in the VMM's mount namespace, whose root the
//! directory is, and not in the node's. A small tmpfs, gone with its unmounting, so that no removal here ever walks into somebody's
//! files.

use std::io;
use std::path::Path;

use nix::errno::Errno;
use nix::mount::{MntFlags, MsFlags, mount, umount2};
use runtime_fail_points::{Point, pass};

/// The directory's name in the pod's run directory.
pub(crate) const NAME: &str = "shared";

/// Mount points, and files of a few bytes, in memory.
const OPTIONS: &str = "mode=0755,size=4m";

/// Mounts on top of each other that are taken away at most: a daemon that died between mounting and
/// writing down leaves one behind.
const STACKED_MAX: usize = 16;

/// Makes the directory and mounts it, which needs privileges.
pub(crate) fn make(dir: &Path) -> io::Result<()> {
    remove(dir)?;
    pass(Point::SharedDirMake)?;
    std::fs::create_dir(dir)?;
    pass(Point::SharedDirMount)?;
    let flags = MsFlags::MS_NOSUID | MsFlags::MS_NODEV | MsFlags::MS_NOEXEC;
    Ok(mount(Some("podvisor-shared"), dir, Some("tmpfs"), flags, Some(OPTIONS))?)
}

/// Takes the directory away, with all that is mounted below it. A missing directory is no error.
pub(crate) fn remove(dir: &Path) -> io::Result<()> {
    if let Err(error) = std::fs::symlink_metadata(dir) {
        return if error.kind() == io::ErrorKind::NotFound { Ok(()) } else { Err(error) };
    }
    pass(Point::SharedDirUnmount)?;
    for _ in 0..STACKED_MAX {
        match umount2(dir, MntFlags::MNT_DETACH | MntFlags::UMOUNT_NOFOLLOW) {
            Ok(()) => {}
            // No mount point any more.
            Err(Errno::EINVAL) => break,
            // Who may not unmount has not mounted.
            Err(Errno::EPERM) => break,
            Err(error) => return Err(error.into()),
        }
    }
    // Not recursive: where something were still mounted, this fails and deletes nothing.
    std::fs::remove_dir(dir)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn one_that_is_not_there_or_not_mounted_is_taken_away() {
        let dir = tempfile::tempdir().unwrap();
        let shared = dir.path().join(NAME);
        remove(&shared).unwrap();
        fs::create_dir(&shared).unwrap();
        remove(&shared).unwrap();
        assert!(!shared.exists());
    }

    #[test]
    fn what_is_mounted_below_goes_with_it_and_keeps_its_files() {
        let dir = tempfile::tempdir().unwrap();
        let shared = dir.path().join(NAME);
        match make(&shared) {
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                eprintln!("skipped: needs the privilege to mount");
                return;
            }
            made => made.unwrap(),
        }
        let (volume, point) = (dir.path().join("volume"), shared.join("volume"));
        fs::create_dir(&volume).unwrap();
        fs::write(volume.join("kept"), "x").unwrap();
        fs::create_dir(&point).unwrap();
        let none = None::<&str>;
        mount(Some(&volume), &point, none, MsFlags::MS_BIND, none).unwrap();
        assert!(point.join("kept").exists());
        // As after a daemon that died half way.
        mount(Some("again"), &shared, Some("tmpfs"), MsFlags::empty(), none).unwrap();
        remove(&shared).unwrap();
        assert!(!shared.exists());
        assert_eq!(fs::read(volume.join("kept")).unwrap(), b"x");
    }
}
