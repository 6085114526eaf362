//! Published volumes: copies of the kubelet's published files (Secrets, ConfigMaps and their like) in the
//! guest's memory. The host sends each version in pieces. They stay invisible until the last one has arrived.
//! Then the version replaces the old one atomically ([`swap`]).
//!
//! ```text
//!  <volumes>/<name>/incoming/       a version being sent
//!  <volumes>/<name>/volume/         mounted by containers
//! ```
//!
//! A volume of one container is removed with it. The others live as long as the pod.

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

/// Parent of the volumes.
const DIRECTORY: &str = "/run/podvisor/published-volumes";
/// Limit of all volumes together: several times the daemon's limit for one pod, with the old and the new
/// version of each.
const OPTIONS: &str = "mode=0711,size=64m";
/// Most volumes of one pod: some for each of the most containers.
const VOLUMES_MAX: usize = 4096;
/// Longest name of a volume.
const NAME_BYTES_MAX: usize = 64;

/// Name of the mounted directory.
const VOLUME: &str = "volume";
/// Name of the directory of a version being sent.
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
    #[error("the piece belongs to a version of volume {0} not being sent")]
    Transfer(String),
    #[error("cannot write volume {volume}")]
    Io { volume: String, source: io::Error },
}

/// Result of a piece.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Taken {
    /// The volume already has the version, and needs no more pieces.
    Current,
    /// More pieces will follow.
    Piece,
    /// The version is in force. It may have replaced an old one.
    Version {
        /// The old version, to be removed by [`PublishedVolumes::remove_old`].
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
    /// The volume is removed with this container. Empty for a volume of the pod.
    container: String,
    /// The version being sent, by its sender's number.
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

    /// Removes a replaced version.
    pub(crate) fn remove_old(&self, name: &str, version: &OsStr) {
        let known = self.known();
        if !known.contains_key(name) {
            return;
        }
        if let Err(error) = swap::remove_version(&self.directory.join(name).join(VOLUME), version) {
            tracing::warn!(volume = name, %error, "a replaced version cannot be removed");
        }
    }

    /// Opens a volume, or a file of a volume without versions.
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

    /// Removes the volumes of a container.
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
                // Otherwise the next piece would be written to the directory itself.
                let _ = fs::remove_dir(&self.directory);
                error.into()
            })
    }

    fn known(&self) -> MutexGuard<'_, BTreeMap<String, Published>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns the name if it is a valid volume name.
fn checked(name: &str) -> Result<&str, PublishedVolumeError> {
    let plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    if name.is_empty() || name.len() > NAME_BYTES_MAX || !name.bytes().all(plain) {
        return Err(PublishedVolumeError::Name(name.chars().take(NAME_BYTES_MAX).collect()));
    }
    Ok(name)
}

#[cfg(test)]
mod tests;
