//! The kubelet's volumes on the node.

use std::fmt::Debug;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use async_trait::async_trait;
use runtime_blocking::Pool;
use runtime_spec::{KubeletPath, VolumeLimits, VolumePlugin};
use tokio::sync::{Notify, watch};

use super::error::{BackendError, BackendErrorKind};
use crate::host::disk_image::DiskTemplate;
use crate::volumes::directory_changes::{DirectoryChanges, Watch};
use crate::volumes::disk::{self, DiskVolumeError};
pub(crate) use crate::volumes::disk::{DiskContent, DiskFound};
use crate::volumes::memory;
pub(crate) use crate::volumes::memory::MemoryFound;
use crate::volumes::mount_changes::MountChanges;
use crate::volumes::published::{self, ReadError, Snapshot};

/// Volumes in the kubelet's directories.
#[async_trait]
pub(crate) trait Volumes: Debug + Send + Sync {
    /// Finds the volumes among the paths. Results have the number of their path.
    async fn find(&self, paths: Vec<(usize, KubeletPath)>)
    -> Result<Vec<(usize, FoundVolume)>, BackendError>;
    /// Finds only the disk volumes among the paths.
    async fn find_disks(
        &self,
        paths: Vec<(usize, KubeletPath)>,
    ) -> Result<Vec<(usize, FoundVolume)>, BackendError>;
    /// The limits of the volumes in these directories. Missing directories are left out.
    async fn limits(&self, directories: Vec<PathBuf>) -> Result<Vec<(PathBuf, VolumeLimits)>, BackendError>;
    /// Notified when limits of volumes may have changed.
    fn changes(&self) -> watch::Receiver<()>;
    /// The current versions of the published volumes in these directories. Missing directories are left out.
    async fn versions(&self, directories: Vec<PathBuf>) -> Result<Vec<(PathBuf, String)>, BackendError>;
    /// Opens the disk of the volume in this directory for exclusive use by a VM, and makes it if there is
    /// none.
    async fn open_disk(&self, directory: PathBuf) -> Result<File, BackendError>;
    /// Reads the current version of a published volume.
    async fn read(&self, directory: PathBuf) -> Result<Snapshot, BackendError>;
    /// Notifies `follower` when the volume may have a new version, until the watch is dropped.
    async fn watch(&self, directory: PathBuf, follower: Arc<Notify>) -> Result<Watch, BackendError>;
}

/// A volume of the kubelet's.
#[derive(Clone, Debug)]
pub(crate) enum FoundVolume {
    Memory(MemoryFound),
    Disk(DiskFound),
    Published(PublishedFound),
}

/// A published volume, or a part of one.
#[derive(Clone, Debug)]
pub(crate) struct PublishedFound {
    /// The directory of the volume, or the place of the part.
    pub(crate) place: PathBuf,
    /// The files there, or the reason why they are not copied.
    pub(crate) content: Result<Snapshot, &'static str>,
}

/// The kubelet's directories. Checks run beside the async threads: a path may be on a slow file system.
#[derive(Debug)]
pub(crate) struct KubeletVolumes {
    pub(crate) paths: Pool,
    pub(crate) mounts: MountChanges,
    pub(crate) directories: Arc<DirectoryChanges>,
    /// The initial image of a volume's disk.
    pub(crate) template: DiskTemplate,
}

#[async_trait]
impl Volumes for KubeletVolumes {
    async fn find(
        &self,
        paths: Vec<(usize, KubeletPath)>,
    ) -> Result<Vec<(usize, FoundVolume)>, BackendError> {
        self.each(paths, find).await
    }

    async fn find_disks(
        &self,
        paths: Vec<(usize, KubeletPath)>,
    ) -> Result<Vec<(usize, FoundVolume)>, BackendError> {
        self.each(paths, |path| Ok(disk::find(path)?.map(FoundVolume::Disk))).await
    }

    async fn limits(&self, directories: Vec<PathBuf>) -> Result<Vec<(PathBuf, VolumeLimits)>, BackendError> {
        let look = move || -> Result<Vec<_>, BackendError> {
            let mut found = Vec::new();
            for directory in directories {
                if let Some(limits) = memory::limits(&directory)? {
                    found.push((directory, limits));
                }
            }
            Ok(found)
        };
        self.paths.run(look).await?
    }

    fn changes(&self) -> watch::Receiver<()> {
        self.mounts.follow()
    }

    async fn versions(&self, directories: Vec<PathBuf>) -> Result<Vec<(PathBuf, String)>, BackendError> {
        let look = move || -> Result<Vec<_>, BackendError> {
            let mut found = Vec::new();
            for directory in directories {
                match published::version(&directory) {
                    Ok(version) => found.push((directory, version)),
                    Err(error) if error.is_absent() => {}
                    Err(error) => return Err(BackendError::failed(error)),
                }
            }
            Ok(found)
        };
        self.paths.run(look).await?
    }

    async fn open_disk(&self, directory: PathBuf) -> Result<File, BackendError> {
        let template = self.template.clone();
        Ok(self.paths.run(move || disk::open(&directory, &template)).await??)
    }

    async fn read(&self, directory: PathBuf) -> Result<Snapshot, BackendError> {
        let read = move || published::read(&directory).map_err(BackendError::failed);
        self.paths.run(read).await?
    }

    async fn watch(&self, directory: PathBuf, follower: Arc<Notify>) -> Result<Watch, BackendError> {
        self.directories.prepare()?;
        let directories = self.directories.clone();
        Ok(self.paths.run(move || directories.watch(&directory, follower)).await??)
    }
}

impl KubeletVolumes {
    /// Checks each of the paths.
    async fn each(
        &self,
        paths: Vec<(usize, KubeletPath)>,
        find: fn(&KubeletPath) -> Result<Option<FoundVolume>, BackendError>,
    ) -> Result<Vec<(usize, FoundVolume)>, BackendError> {
        let look = move || {
            let find = |(number, path)| Ok(find(&path)?.map(|volume| (number, volume)));
            paths.into_iter().filter_map(|one| find(one).transpose()).collect()
        };
        self.paths.run(look).await?
    }
}

fn find(path: &KubeletPath) -> Result<Option<FoundVolume>, BackendError> {
    if let Some(memory) = memory::find(path)? {
        return Ok(Some(FoundVolume::Memory(memory)));
    }
    if let Some(disk) = disk::find(path)? {
        return Ok(Some(FoundVolume::Disk(disk)));
    }
    let is_there =
        |plugin: &VolumePlugin| path.directory(*plugin).is_some_and(|directory| directory.is_dir());
    if !VolumePlugin::PUBLISHED.iter().any(is_there) {
        return Ok(None);
    }
    let (place, content): (&Path, _) = match path {
        KubeletPath::Volume { directory, .. } => (directory, published::read(directory)),
        KubeletPath::SubPath { path, .. } => (path, published::read_part(path)),
    };
    let content = match content {
        Ok(content) => Ok(content),
        Err(ReadError::Unlike(why)) => Err(why),
        // The share says so, by the path.
        Err(error) if error.is_absent() => return Ok(None),
        Err(error) => return Err(BackendError::failed(format!("host path {}: {error}", place.display()))),
    };
    Ok(Some(FoundVolume::Published(PublishedFound { place: place.to_owned(), content })))
}

impl From<DiskVolumeError> for BackendError {
    fn from(error: DiskVolumeError) -> Self {
        let kind = match error {
            DiskVolumeError::InUse(_) | DiskVolumeError::Foreign(_) => BackendErrorKind::Precondition,
            DiskVolumeError::Io { .. } => BackendErrorKind::Failed,
        };
        BackendError::new(kind, error)
    }
}
