//! Memory volumes: each is a tmpfs of the guest, shared by the pod's containers and alive as long as the pod.
//! Its pages count for the container writing them.
//!
//! For a pod without a limit of memory the kubelet asks for as many bytes as the node has. The guest has
//! less, and would run out of memory before the volume is full. Such a volume gets tmpfs' own default
//! instead: half of the guest's memory. Programs then see that it is full, as on a node.
//!
//! [`crate::volume_part`] finds a container's part of a volume.

use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use nix::mount::MsFlags;
use proto_agent::agent::{FileAccess, MemoryVolume, VolumeLimits};

use crate::kernel_limits;
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
        let options = options(volume, kernel_limits::memory_bytes());
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
        let options = bounds(limits, kernel_limits::memory_bytes());
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

/// Options of a volume's mount (tmpfs(5)), in a guest with this much memory.
fn options(volume: &MemoryVolume, memory_bytes: u64) -> String {
    let access = volume.access.clone().unwrap_or_default();
    let bounds = bounds(&volume.limits.clone().unwrap_or_default(), memory_bytes);
    format!("{bounds},mode={:o},uid={},gid={}", access.mode & 0o7777, access.uid, access.gid)
}

fn bounds(limits: &VolumeLimits, memory_bytes: u64) -> String {
    // For tmpfs, 0 means no bound.
    let within = |asked: u64, most: u64| if (1..=most).contains(&asked) { asked } else { most / 2 };
    let (bytes, inodes) = (within(limits.bytes, memory_bytes), within(limits.inodes, memory_bytes / 4096));
    format!("size={bytes},nr_inodes={inodes}")
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
        let mode = "mode=2777,uid=0,gid=2000";
        assert_eq!(options(&volume, 1 << 20), format!("size=65536,nr_inodes=100,{mode}"));
    }

    #[test]
    fn a_volume_that_the_guest_has_no_memory_for_gets_half_of_it() {
        let of = |bytes, inodes| bounds(&VolumeLimits { bytes, inodes, ..VolumeLimits::default() }, 1 << 20);
        assert_eq!(of(1 << 20, 256), "size=1048576,nr_inodes=256");
        for (bytes, inodes) in [(0, 0), ((1 << 20) + 1, 257), (u64::MAX, u64::MAX)] {
            assert_eq!(of(bytes, inodes), "size=524288,nr_inodes=128", "{bytes} {inodes}");
        }
    }
}
