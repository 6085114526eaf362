//! The kubelet's volumes on the node.

use std::fmt::Debug;
use std::io;
use std::path::PathBuf;

use async_trait::async_trait;
use runtime_blocking::Pool;
use runtime_spec::{KubeletPath, VolumeLimits};
use tokio::sync::watch;

use super::error::BackendError;
use crate::volumes::memory;
pub(crate) use crate::volumes::memory::MemoryFound;
use crate::volumes::mount_changes::MountChanges;

/// Volumes, where the kubelet has them.
#[async_trait]
pub(crate) trait Volumes: Debug + Send + Sync {
    /// Finds those of the paths that are volumes in memory, by the numbers that come with them.
    async fn find_memory(
        &self,
        paths: Vec<(usize, KubeletPath)>,
    ) -> Result<Vec<(usize, MemoryFound)>, BackendError>;
    /// The bounds of the volumes in these directories, without those that are there no more.
    async fn limits(&self, directories: Vec<PathBuf>) -> Result<Vec<(PathBuf, VolumeLimits)>, BackendError>;
    /// Notified when bounds of volumes may have changed.
    fn changes(&self) -> watch::Receiver<()>;
}

/// The kubelet's directories. Looking runs beside the async threads: a path may be on a file system that is slow to answer.
#[derive(Debug)]
pub(crate) struct KubeletVolumes {
    pub(crate) paths: Pool,
    pub(crate) mounts: MountChanges,
}

#[async_trait]
impl Volumes for KubeletVolumes {
    async fn find_memory(
        &self,
        paths: Vec<(usize, KubeletPath)>,
    ) -> Result<Vec<(usize, MemoryFound)>, BackendError> {
        let look = move || -> io::Result<Vec<_>> {
            let found = paths.iter().map(|(number, path)| Ok((*number, memory::find(path)?)));
            let found: Vec<_> = found.collect::<io::Result<_>>()?;
            Ok(found.into_iter().filter_map(|(number, found)| Some((number, found?))).collect())
        };
        Ok(self.paths.run(look).await??)
    }

    async fn limits(&self, directories: Vec<PathBuf>) -> Result<Vec<(PathBuf, VolumeLimits)>, BackendError> {
        let look = move || -> io::Result<Vec<_>> {
            let mut found = Vec::new();
            for directory in directories {
                if let Some(limits) = memory::limits(&directory)? {
                    found.push((directory, limits));
                }
            }
            Ok(found)
        };
        Ok(self.paths.run(look).await??)
    }

    fn changes(&self) -> watch::Receiver<()> {
        self.mounts.follow()
    }
}
