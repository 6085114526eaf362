//! Memory volumes: each is a tmpfs of the guest, shared by the pod's containers and alive as long as the pod.
//! Its pages count for the container writing them.
//!
//! [`crate::volume_part`] finds a container's part of a volume.

use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use nix::mount::MsFlags;
use proto_agent::agent::{FileAccess, MemoryVolume, VolumeLimits};

use crate::volume_part::{NAME_BYTES_MAX, is_name, open_part};

/// Parent of the volumes' mount points.
const DIRECTORY: &str = "/run/podvisor/memory-volumes";
/// Most volumes of one pod: the maximum number of mounts of one container.
const VOLUMES_MAX: usize = 512;

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
    /// Opens a part of a volume. Makes the volume, and a directory at `sub_path`, if they are missing.
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

    /// Changes the limits of a volume.
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
    if !is_name(name) {
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

#[cfg(test)]
mod tests {
    use super::*;

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
