//! Published volumes: copies of what the kubelet publishes on the node (Secrets, ConfigMaps and their like), in the guest's
//! memory. The host sends each version in pieces, which nobody sees before the last one is there; then the version takes
//! the old one's place at once ([`swap`]).
//!
//! ```text
//!  <volumes>/<name>/incoming/       a version that is being sent
//!  <volumes>/<name>/volume/         what containers mount
//! ```
//!
//! A volume of one container goes with it; the others live as long as the pod.

mod file;
mod swap;

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use nix::mount::MsFlags;
use proto_agent::agent::{FileAccess, PublishVolumeRequest};
use rustix::fs::{CWD, Mode, OFlags, ResolveFlags, openat2};

/// Where the volumes are.
const DIRECTORY: &str = "/run/podvisor/published-volumes";
/// Bound of all volumes together: several times what the daemon sends to one pod, with the old and the new version of each.
const OPTIONS: &str = "mode=0711,size=64m";
/// Volumes of one pod: some for each container that it may have.
const VOLUMES_MAX: usize = 4096;
/// Longest name of a volume.
const NAME_BYTES_MAX: usize = 64;

/// Name of the directory that containers mount.
const VOLUME: &str = "volume";
/// Name of the directory of a version that is being sent.
const INCOMING: &str = "incoming";

/// Why a published volume cannot be written or used.
#[derive(Debug, thiserror::Error)]
pub(crate) enum PublishedVolumeError {
    #[error("{0:?} is no name of a volume, a version or a file in one")]
    Name(String),
    #[error("the pod has no published volume {0}")]
    Unknown(String),
    #[error("the pod has {VOLUMES_MAX} published volumes, and can have no more")]
    TooMany,
    #[error("the piece is of a version of volume {0} that is not being sent")]
    Transfer(String),
    #[error("cannot write volume {volume}")]
    Io { volume: String, source: io::Error },
}

/// Fate of a piece.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Taken {
    /// The volume has the version already, and needs no more pieces.
    Current,
    /// More pieces are to come.
    Piece,
    /// The version is in force, in the place of an old one.
    Version {
        /// The old version, which [`PublishedVolumes::remove_old`] is for.
        old: Option<OsString>,
    },
}

/// The pod's published volumes, by name.
#[derive(Debug)]
pub(crate) struct PublishedVolumes {
    directory: PathBuf,
    known: Mutex<BTreeMap<String, Published>>,
}

/// One published volume.
#[derive(Debug, Default)]
struct Published {
    /// Container that the volume goes with; empty for a volume of the pod.
    container: String,
    /// The version that is being sent, by the number that its sender chose.
    transfer: Option<u64>,
}

impl Default for PublishedVolumes {
    fn default() -> PublishedVolumes {
        PublishedVolumes { directory: DIRECTORY.into(), known: Mutex::default() }
    }
}

impl PublishedVolumes {
    /// Takes a piece of a version.
    pub(crate) fn publish(&self, request: &PublishVolumeRequest) -> Result<Taken, PublishedVolumeError> {
        let name = checked(&request.volume)?;
        if !request.version.is_empty() && !swap::is_version(&request.version) {
            return Err(PublishedVolumeError::Name(request.version.chars().take(128).collect()));
        }
        let failed = |source| PublishedVolumeError::Io { volume: name.to_owned(), source };
        let mut known = self.known();
        let place = self.directory.join(name);
        if request.first {
            self.mount(known.is_empty()).map_err(failed)?;
            if known.len() >= VOLUMES_MAX && !known.contains_key(name) {
                return Err(PublishedVolumeError::TooMany);
            }
            let volume = known.entry(name.to_owned()).or_default();
            volume.container.clone_from(&request.container_id);
            if swap::has(&place.join(VOLUME), &request.version) {
                volume.transfer = None;
                return Ok(Taken::Current);
            }
            volume.transfer = Some(request.transfer);
            swap::clear(&place.join(INCOMING)).map_err(failed)?;
            fs::create_dir_all(place.join(INCOMING)).map_err(failed)?;
        }
        let volume = known.get_mut(name).filter(|volume| volume.transfer == Some(request.transfer));
        let volume = volume.ok_or_else(|| PublishedVolumeError::Transfer(name.to_owned()))?;
        for file in &request.files {
            file::write(&place.join(INCOMING), file).map_err(|error| match error {
                file::FileError::Path(path) => PublishedVolumeError::Name(path),
                file::FileError::Io(source) => failed(source),
            })?;
        }
        if !request.last {
            return Ok(Taken::Piece);
        }
        volume.transfer = None;
        let access = |access: &protobuf::MessageField<FileAccess>| access.clone().unwrap_or_default();
        file::set_access(&place.join(INCOMING), &access(&request.top)).map_err(failed)?;
        let root = access(&request.root);
        let old = swap::swap(&place.join(VOLUME), &place.join(INCOMING), &request.version, &root);
        Ok(Taken::Version { old: old.map_err(failed)? })
    }

    /// Removes a version that another one has taken the place of.
    pub(crate) fn remove_old(&self, name: &str, version: &OsStr) {
        let known = self.known();
        if !known.contains_key(name) {
            return;
        }
        if let Err(error) = swap::remove_version(&self.directory.join(name).join(VOLUME), version) {
            tracing::warn!(volume = name, %error, "a version that is in force no more is there still");
        }
    }

    /// Opens a volume, or a file of one that has no versions.
    pub(crate) fn open(&self, name: &str, sub_path: &str) -> Result<OwnedFd, PublishedVolumeError> {
        let place = self.directory.join(checked(name)?).join(VOLUME);
        let failed = |source| PublishedVolumeError::Io { volume: name.to_owned(), source };
        let flags = OFlags::PATH | OFlags::CLOEXEC;
        let opened =
            rustix::fs::openat(CWD, &place, flags | OFlags::DIRECTORY | OFlags::NOFOLLOW, Mode::empty());
        let opened = opened.map_err(|_| PublishedVolumeError::Unknown(name.to_owned()))?;
        if sub_path.is_empty() {
            return Ok(opened);
        }
        let within = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS;
        openat2(&opened, sub_path, flags, Mode::empty(), within).map_err(|errno| failed(errno.into()))
    }

    /// Removes the volumes that go with a container.
    pub(crate) fn remove_of(&self, container_id: &str) -> io::Result<()> {
        let mut known = self.known();
        let its = |volume: &Published| !container_id.is_empty() && volume.container == container_id;
        let names: Vec<String> =
            known.iter().filter(|(_, volume)| its(volume)).map(|(name, _)| name.clone()).collect();
        for name in names {
            swap::clear(&self.directory.join(&name))?;
            known.remove(&name);
        }
        Ok(())
    }

    /// Mounts the volumes' memory, with the first volume.
    fn mount(&self, first: bool) -> io::Result<()> {
        if !first || self.directory != Path::new(DIRECTORY) || self.directory.exists() {
            return Ok(());
        }
        fs::create_dir_all(&self.directory)?;
        let flags = MsFlags::MS_NOSUID | MsFlags::MS_NODEV;
        nix::mount::mount(Some("published-volumes"), &self.directory, Some("tmpfs"), flags, Some(OPTIONS))
            .map_err(|error| {
                // The next piece would be written beside the mount otherwise.
                let _ = fs::remove_dir(&self.directory);
                error.into()
            })
    }

    fn known(&self) -> MutexGuard<'_, BTreeMap<String, Published>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The name, if it is one of a volume.
fn checked(name: &str) -> Result<&str, PublishedVolumeError> {
    let plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    if name.is_empty() || name.len() > NAME_BYTES_MAX || !name.bytes().all(plain) {
        return Err(PublishedVolumeError::Name(name.chars().take(NAME_BYTES_MAX).collect()));
    }
    Ok(name)
}

#[cfg(test)]
mod tests;
