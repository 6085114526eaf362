//! Host paths in pods' shared directories.

use std::fmt::Debug;
use std::path::PathBuf;

use async_trait::async_trait;
use runtime_share::Bind;

use super::Fault;

/// Binds of host paths, by containers.
#[async_trait]
pub(crate) trait Shares: Debug + Send + Sync {
    /// Binds each path to its number in the container's directory: all or none.
    async fn bind(&self, place: Place, binds: Vec<(usize, Bind)>) -> Result<(), Fault>;
    /// Takes the binds with these numbers away. Idempotent.
    async fn unbind(&self, place: Place, numbers: Vec<usize>) -> Result<(), Fault>;
}

/// A container's directory in its pod's shared directory.
#[derive(Clone, Debug)]
pub(crate) struct Place {
    pub(crate) shared: PathBuf,
    pub(crate) container: String,
}

/// The kernel's mounts. Beside the async threads: a path may be on a filesystem that is slow to answer.
#[derive(Debug)]
pub(crate) struct HostShares;

#[async_trait]
impl Shares for HostShares {
    async fn bind(&self, place: Place, binds: Vec<(usize, Bind)>) -> Result<(), Fault> {
        let work = move || {
            let binds = binds.iter().map(|(number, bind)| (*number, bind));
            runtime_share::bind_all(&place.shared, &place.container, binds)
        };
        Ok(tokio::task::spawn_blocking(work).await??)
    }

    async fn unbind(&self, place: Place, numbers: Vec<usize>) -> Result<(), Fault> {
        let work = move || runtime_share::unbind_all(&place.shared, &place.container, numbers);
        Ok(tokio::task::spawn_blocking(work).await??)
    }
}
