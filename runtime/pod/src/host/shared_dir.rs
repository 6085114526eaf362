//! A small tmpfs of a pod's VM. Its size limits everything the VMM can write on the node.
//!
//! ```text
//!   <run>/pods/<name>/shared/root     the VMM's root, the part of the host's files visible to the guest
//!                           /logs     files for the VMM's log and the guest's console, kept open by the VMM
//! ```
//!
//! The root holds mount points only. Volumes are mounted on them in the VMM's mount namespace, not in the
//! node's. The tmpfs disappears when unmounted, so no removal here ever walks into other files.

use std::io;
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::mount::{MntFlags, MsFlags, mount, umount2};
use runtime_fail_points::{Point, pass};

/// The tmpfs' name in the pod's run directory.
pub(crate) const NAME: &str = "shared";

/// The VMM's root in it.
pub(crate) const ROOT: &str = "root";

/// The directory of its logs.
pub(crate) const LOGS: &str = "logs";

/// Mount points, files of a few bytes, and two logs.
const OPTIONS: &str = "mode=0755,size=5m";

/// Most mounts removed from the same place. A daemon that died between mounting and recording leaves one
/// behind.
const STACKED_MAX: usize = 16;

/// Makes the tmpfs with its two directories. Needs privileges.
pub(crate) fn make(dir: &Path) -> io::Result<()> {
    remove(dir)?;
    pass(Point::SharedDirMake)?;
    std::fs::create_dir(dir)?;
    pass(Point::SharedDirMount)?;
    let flags = MsFlags::MS_NOSUID | MsFlags::MS_NODEV | MsFlags::MS_NOEXEC;
    mount(Some("podvisor-shared"), dir, Some("tmpfs"), flags, Some(OPTIONS))?;
    [ROOT, LOGS].into_iter().try_for_each(|name| std::fs::create_dir(dir.join(name)))
}

/// Returns the VMM's root. VMMs of earlier releases have the whole tmpfs as their root.
pub(crate) fn root(dir: &Path) -> PathBuf {
    let root = dir.join(ROOT);
    if root.is_dir() { root } else { dir.to_owned() }
}

/// Removes the tmpfs, with all mounts below it. A missing directory is no error.
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
            // Without the right to unmount, this process has not mounted either.
            Err(Errno::EPERM) => break,
            Err(error) => return Err(error.into()),
        }
    }
    // Not recursive: if something were still mounted, this fails and deletes nothing.
    std::fs::remove_dir(dir)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    /// A directory with the tmpfs in it. `None` without the privilege to mount.
    fn made() -> Option<(tempfile::TempDir, PathBuf)> {
        let dir = tempfile::tempdir().unwrap();
        let shared = dir.path().join(NAME);
        match make(&shared) {
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                eprintln!("skipped: needs the privilege to mount");
                None
            }
            made => made.map(|()| Some((dir, shared))).unwrap(),
        }
    }

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
    fn a_vmm_fills_its_own_directory_and_nothing_else() {
        let Some((dir, shared)) = made() else { return };
        let mut log = fs::File::create(shared.join(LOGS).join("vmm.log")).unwrap();
        let full = std::iter::repeat_with(|| io::Write::write_all(&mut log, &[0; 64 << 10]))
            .take(1000)
            .find_map(Result::err);
        assert_eq!(full.unwrap().kind(), io::ErrorKind::StorageFull);
        fs::write(dir.path().join("beside"), "x").unwrap();
        drop(log);
        remove(&shared).unwrap();
    }

    #[test]
    fn a_vmm_of_an_earlier_release_has_all_of_it_as_its_root() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(root(dir.path()), dir.path());
    }

    #[test]
    fn what_is_mounted_below_goes_with_it_and_keeps_its_files() {
        let Some((dir, shared)) = made() else { return };
        assert_eq!(root(&shared), shared.join(ROOT));
        let (volume, point) = (dir.path().join("volume"), root(&shared).join("volume"));
        fs::create_dir(&volume).unwrap();
        fs::write(volume.join("kept"), "x").unwrap();
        fs::create_dir(&point).unwrap();
        let none = None::<&str>;
        mount(Some(&volume), &point, none, MsFlags::MS_BIND, none).unwrap();
        assert!(point.join("kept").exists());
        // As after a daemon's death half-way.
        mount(Some("again"), &shared, Some("tmpfs"), MsFlags::empty(), none).unwrap();
        remove(&shared).unwrap();
        assert!(!shared.exists());
        assert_eq!(fs::read(volume.join("kept")).unwrap(), b"x");
    }
}
