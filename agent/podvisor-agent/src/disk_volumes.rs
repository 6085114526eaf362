//! Disk volumes: each is a file system on its own disk. The host keeps the disk's file in the volume's
//! directory on the node. The pod's containers share the volume. It outlives the pod's VM, and the VM may end
//! at any moment. Once mounted, it stays mounted until the pod ends.
//!
//! The host's file system may hang, so disks are only touched on separate threads ([`crate::host_work`]).
//! [`crate::volume_part`] finds a container's part of a volume.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::time::Duration;

use futures::future::join_all;
use nix::mount::{MntFlags, MsFlags};
use proto_agent::agent::{DiskVolume, FileAccess};
use rustix::fs::{CWD, Mode, OFlags};
use tokio::sync::Mutex;

use crate::ext4_disk;
use crate::host_work::{HostWork, HostWorkError};
use crate::slots::{Class, SlotError, Slots};
use crate::volume_part::{NAME_BYTES_MAX, admit, is_name, open_part};

/// Parent of the volumes' mount points.
const DIRECTORY: &str = "/run/podvisor/disk-volumes";

/// Timeout for mounting a disk. After an earlier VM's end its journal is replayed.
const MOUNTED_WITHIN: Duration = Duration::from_secs(60);
/// Timeout for writing back one disk.
const WRITTEN_WITHIN: Duration = Duration::from_secs(10);

/// Why a disk volume cannot be used.
#[derive(Debug, thiserror::Error)]
pub(crate) enum DiskVolumeError {
    #[error("{0:?} is no name of a volume")]
    Name(String),
    #[error("volume {volume} is in slot {is}, not {asked}")]
    Moved { volume: String, is: u32, asked: u32 },
    #[error(transparent)]
    Slot(#[from] SlotError),
    #[error("cannot make a place for a volume")]
    Place(#[source] io::Error),
    #[error("cannot mount the disk of a volume")]
    Mount(#[source] nix::Error),
    #[error("cannot set the owner and the mode of a volume")]
    Admit(#[source] io::Error),
    #[error("cannot find the sub path {sub_path:?} in a volume")]
    SubPath { sub_path: String, source: io::Error },
    #[error(transparent)]
    HostWork(#[from] HostWorkError),
}

/// The pod's disk volumes.
#[derive(Debug, Default)]
pub(crate) struct DiskVolumes {
    slots: Slots,
    /// Slots of the mounted volumes, by name. The lock is held during a mount.
    mounted: Mutex<BTreeMap<String, u32>>,
    work: HostWork,
}

impl DiskVolumes {
    /// Opens a part of a volume. Mounts the volume if necessary, and makes a directory at `sub_path` if it is
    /// missing.
    pub(crate) async fn open(
        &self,
        name: &str,
        volume: &DiskVolume,
        sub_path: &str,
        sub_access: &FileAccess,
    ) -> Result<OwnedFd, DiskVolumeError> {
        let place = place(name)?;
        self.mount(name, volume, &place).await?;
        let (part, access) = (sub_path.to_owned(), sub_access.clone());
        let open = move || open_part(&place, &part, &access);
        let opened = self.work.run("open a part of a volume", MOUNTED_WITHIN, open).await?;
        opened.map_err(|source| DiskVolumeError::SubPath { sub_path: sub_path.to_owned(), source })
    }

    async fn mount(&self, name: &str, volume: &DiskVolume, place: &Path) -> Result<(), DiskVolumeError> {
        let mut mounted = self.mounted.lock().await;
        match mounted.get(name) {
            Some(slot) if *slot == volume.slot => return Ok(()),
            Some(slot) => {
                let (volume, asked) = (name.to_owned(), volume.slot);
                return Err(DiskVolumeError::Moved { volume, is: *slot, asked });
            }
            None => {}
        }
        let device = self.slots.device(volume.slot, Class::Block).await?;
        let (place, access) = (place.to_owned(), volume.access.clone().unwrap_or_default());
        let mount = move || mount(&device, &place, &access);
        self.work.run("mount the disk of a volume", MOUNTED_WITHIN, mount).await??;
        mounted.insert(name.to_owned(), volume.slot);
        Ok(())
    }

    /// Writes all volumes back and unmounts them. Failures are only logged: a hanging disk must not keep a
    /// pod from ending.
    pub(crate) async fn unmount(&self) {
        let mut mounted = self.mounted.lock().await;
        let volumes = std::mem::take(&mut *mounted).into_keys();
        // Together, because the host waits a bounded time for all of them.
        join_all(volumes.map(async |name| {
            let Ok(place) = place(&name) else { return };
            let unmounted = self.work.run("unmount a volume", WRITTEN_WITHIN, move || unmount(&place)).await;
            match unmounted {
                Ok(Ok(())) => {}
                Ok(Err(error)) => tracing::warn!(volume = name, %error, "a volume could not be unmounted"),
                Err(error) => tracing::warn!(volume = name, %error, "a volume could not be unmounted"),
            }
        }))
        .await;
    }
}

/// The mount point of a volume.
fn place(name: &str) -> Result<PathBuf, DiskVolumeError> {
    if !is_name(name) {
        return Err(DiskVolumeError::Name(name.chars().take(NAME_BYTES_MAX).collect()));
    }
    Ok(Path::new(DIRECTORY).join(name))
}

fn mount(device: &str, place: &Path, access: &FileAccess) -> Result<(), DiskVolumeError> {
    fs::create_dir_all(place).map_err(DiskVolumeError::Place)?;
    // An attempt may have succeeded after its timeout.
    if let Err(error) = unmount(place) {
        tracing::debug!(%error, place = %place.display(), "a volume cannot be unmounted");
    }
    ext4_disk::mount(device, place, MsFlags::MS_NODEV, "discard").map_err(DiskVolumeError::Mount)?;
    admit_new(place, access).map_err(|error| {
        if let Err(error) = unmount(place) {
            tracing::warn!(%error, place = %place.display(), "a volume stays mounted");
        }
        DiskVolumeError::Admit(error)
    })
}

/// Sets the owner and the mode of a new volume. A new volume's root comes from the template without any
/// permissions. A volume looks the same if a program removed all permissions; it gets them back with the next
/// VM.
fn admit_new(place: &Path, access: &FileAccess) -> io::Result<()> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let root = rustix::fs::openat(CWD, place, flags, Mode::empty())?;
    if rustix::fs::fstat(&root)?.st_mode & 0o7777 == 0 {
        admit(&root, access)?;
    }
    Ok(())
}

/// Writes the file system back and unmounts it. It is no error if nothing is mounted there. A mount in use
/// disappears with its last user.
fn unmount(place: &Path) -> io::Result<()> {
    if let Ok(opened) = File::open(place)
        && let Err(error) = rustix::fs::syncfs(&opened)
    {
        tracing::warn!(%error, place = %place.display(), "a volume could not be written back");
    }
    match nix::mount::umount2(place, MntFlags::empty()) {
        Ok(()) | Err(nix::Error::EINVAL | nix::Error::ENOENT) => Ok(()),
        Err(nix::Error::EBUSY) => Ok(nix::mount::umount2(place, MntFlags::MNT_DETACH)?),
        Err(errno) => Err(errno.into()),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn mine(mode: u32) -> FileAccess {
        let (uid, gid) = (nix::unistd::getuid().as_raw(), nix::unistd::getgid().as_raw());
        FileAccess { mode, uid, gid, ..FileAccess::default() }
    }

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).unwrap().permissions().mode() & 0o7777
    }

    #[test]
    fn a_new_volume_gets_the_access_of_the_hosts_directory_and_one_in_use_keeps_its_own() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().join("volume");
        fs::create_dir(&root).unwrap();
        fs::set_permissions(&root, fs::Permissions::from_mode(0o000)).unwrap();
        admit_new(&root, &mine(0o2770)).unwrap();
        assert_eq!(mode(&root), 0o2770);
        admit_new(&root, &mine(0o777)).unwrap();
        assert_eq!(mode(&root), 0o2770);
    }

    #[tokio::test]
    async fn a_name_that_is_a_path_is_refused() {
        let (volumes, volume, access) = (DiskVolumes::default(), DiskVolume::default(), mine(0o700));
        for name in ["", "..", "a/b", "/etc", "A"] {
            let error = volumes.open(name, &volume, "", &access).await.unwrap_err();
            assert!(matches!(error, DiskVolumeError::Name(_)), "{name:?}: {error}");
        }
    }

    #[tokio::test]
    async fn a_volume_that_is_mounted_from_another_slot_is_refused() {
        let volumes = DiskVolumes::default();
        volumes.mounted.lock().await.insert("abc".to_owned(), 33);
        let moved = DiskVolume { slot: 34, ..DiskVolume::default() };
        let error = volumes.open("abc", &moved, "", &mine(0o700)).await.unwrap_err();
        assert!(matches!(error, DiskVolumeError::Moved { is: 33, asked: 34, .. }), "{error}");
    }

    #[test]
    fn what_is_not_mounted_is_unmounted_already() {
        let dir = tempfile::tempdir().unwrap();
        unmount(&dir.path().join("none")).unwrap();
    }
}
