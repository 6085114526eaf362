//! The files of one daemon on the node: pods' files in its directories, and its images.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use runtime_image::Leftovers;

use super::on_record::{DaemonPlace, Life};
use crate::dirs::ACKS;
use crate::error::{PodError, chain_of};

/// Under a running daemon, a file may belong to something not yet on record: to a pull, or to a container
/// being created. A file not written for this long has no owner. A pull takes at most an hour, and a creation
/// less.
const UNTOUCHED: Duration = Duration::from_secs(3600);

/// The files of one daemon.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct DaemonFiles {
    /// State directories by the pods' ids, each with its size in bytes.
    pub(crate) state_dirs: BTreeMap<String, u64>,
    /// Run directories by their names, each with the number of mounts in it.
    pub(crate) run_dirs: BTreeMap<String, usize>,
    pub(crate) acks: Vec<Acks>,
    /// Files of images with no reference.
    pub(crate) image_files: Vec<PathBuf>,
    /// Images without their file.
    pub(crate) images_missing: Vec<String>,
    /// A socket with no listener.
    pub(crate) stale_socket: Option<PathBuf>,
    /// Whether the run directory exists.
    pub(crate) has_run_dir: bool,
}

/// A file of acknowledgements.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Acks {
    /// The pod's directory: its id, or the beginning of it.
    pub(crate) pod: String,
    pub(crate) container: String,
    pub(crate) path: PathBuf,
}

impl DaemonFiles {
    /// Inspects the files of a daemon. `mounts` are the node's mount points.
    pub(crate) fn look(place: &DaemonPlace, mounts: &[PathBuf]) -> Result<DaemonFiles, PodError> {
        let DaemonPlace { dirs, socket, life } = place;
        let untouched = if *life == Life::Serving { UNTOUCHED } else { Duration::ZERO };
        let (state_dirs, run_dirs) = (entries(&dirs.state_dirs()), entries(&dirs.run_dirs()));
        let acks = [&state_dirs, &run_dirs].into_iter().flatten().flat_map(|(pod, path)| acks(pod, path));
        let acks = acks.filter(|acks| *life != Life::Serving || is_untouched(&acks.path)).collect();
        let Leftovers { files, missing } =
            runtime_image::leftovers(&dirs.state_dir.join("images"), untouched)
                .map_err(|error| PodError::internal(format!("looking at images: {}", chain_of(&error))))?;
        let is_stale = *life != Life::Serving && socket.exists() && UnixStream::connect(socket).is_err();
        let mounts_in = |dir: &Path| mounts.iter().filter(|point| point.starts_with(dir)).count();
        Ok(DaemonFiles {
            state_dirs: state_dirs.into_iter().map(|(pod, path)| (pod, bytes(&path))).collect(),
            run_dirs: run_dirs.into_iter().map(|(name, path)| (name, mounts_in(&path))).collect(),
            acks,
            image_files: files,
            images_missing: missing,
            stale_socket: is_stale.then(|| socket.clone()),
            has_run_dir: dirs.run_dir.exists(),
        })
    }
}

fn entries(dir: &Path) -> Vec<(String, PathBuf)> {
    let entries = fs::read_dir(dir).into_iter().flatten().flatten();
    entries.map(|entry| (entry.file_name().to_string_lossy().into_owned(), entry.path())).collect()
}

fn acks(pod: &str, dir: &Path) -> impl Iterator<Item = Acks> {
    entries(dir).into_iter().filter_map(move |(name, path)| {
        let container = name.strip_suffix(ACKS)?.to_owned();
        Some(Acks { pod: pod.to_owned(), container, path })
    })
}

fn is_untouched(path: &Path) -> bool {
    let modified = fs::symlink_metadata(path).and_then(|metadata| metadata.modified());
    modified.is_ok_and(|time| time.elapsed().is_ok_and(|age| age >= UNTOUCHED))
}

/// The bytes on disk of the files in a directory: a scratch disk is sparse.
fn bytes(dir: &Path) -> u64 {
    let files = entries(dir).into_iter().filter_map(|(_, path)| fs::symlink_metadata(path).ok());
    files.map(|file| file.blocks() * 512).sum()
}
