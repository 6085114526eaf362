//! Blocking work, beside the async threads: a pool of threads for each thing with a risk of hanging. The
//! records' pool is in `node/records.rs`, the images' pools are in their crate.

use std::error::Error;
use std::time::Duration;

use runtime_blocking::{Pool, PoolError};

use crate::error::{PodError, PodErrorKind};

/// Threads for pods' files on the state's disk: scratch disks, VMMs' logs, images to be opened.
const STATE_THREADS: usize = 32;

/// Threads for logs. Each log uses at most one.
const LOG_THREADS: usize = 128;

/// Threads for reading `/proc` and cgroups, which are on no disk.
const KERNEL_THREADS: usize = 32;

/// Threads for files named by pods. A path on an unreachable server keeps its thread. One pod may have a
/// few of them, and many such pods all.
const PATH_THREADS: usize = 64;

/// Threads for the kubelet's volumes.
const VOLUME_THREADS: usize = 64;

/// Threads for files of the installation and of the node itself, that every pod's start needs.
const INSTALLATION_THREADS: usize = 32;

/// The pools of a node's pods.
#[derive(Debug)]
pub(crate) struct Pools {
    pub(crate) state: Pool,
    pub(crate) logs: Pool,
    pub(crate) kernel: Pool,
    pub(crate) paths: Pool,
    pub(crate) volumes: Pool,
    pub(crate) installation: Pool,
}

impl Default for Pools {
    fn default() -> Self {
        Pools {
            state: Pool::new("the disk of the daemon's state", STATE_THREADS),
            logs: Pool::new("the disks of logs", LOG_THREADS),
            kernel: Pool::new("the kernel's files", KERNEL_THREADS),
            paths: Pool::new("the node's files", PATH_THREADS),
            volumes: Pool::new("the kubelet's volumes", VOLUME_THREADS),
            installation: Pool::new("the installation's files", INSTALLATION_THREADS),
        }
    }
}

/// Runs blocking work on a thread of the pool; `doing` is the text of its failure.
pub(crate) async fn blocking<T, E>(
    pool: &Pool,
    doing: &str,
    work: impl FnOnce() -> Result<T, E> + Send + 'static,
) -> Result<T, PodError>
where
    T: Send + 'static,
    E: Error + Send + Sync + 'static,
{
    #[cfg(test)]
    if in_place::is_wanted() {
        tokio::task::yield_now().await;
        return work().map_err(|error| PodError::internal(doing).because(error));
    }
    match pool.run(work).await {
        Ok(outcome) => outcome.map_err(|error| PodError::internal(doing).because(error)),
        Err(error @ PoolError::Full { .. }) => {
            Err(PodError::new(PodErrorKind::Unavailable, doing).because(error))
        }
        Err(error @ PoolError::Died(_)) => Err(PodError::internal(doing).because(error)),
    }
}

/// Runs blocking work as [`blocking`] does, but waits at most `bound`. A hanging file system keeps the
/// thread, not the pod.
pub(crate) async fn blocking_within<T, E>(
    bound: Duration,
    pool: &Pool,
    doing: &str,
    work: impl FnOnce() -> Result<T, E> + Send + 'static,
) -> Result<T, PodError>
where
    T: Send + 'static,
    E: Error + Send + Sync + 'static,
{
    within(bound, doing, blocking(pool, doing, work)).await
}

/// Gives up on a call after `bound`; `doing` is the text of this failure.
pub(crate) async fn within<T>(
    bound: Duration,
    doing: &str,
    call: impl Future<Output = Result<T, PodError>>,
) -> Result<T, PodError> {
    tokio::time::timeout(bound, call).await.unwrap_or_else(|_| {
        let text = format!("{doing}: no answer within {} s", bound.as_secs());
        Err(PodError::new(PodErrorKind::DeadlineExceeded, text))
    })
}

/// Blocking work on the async thread itself, for tests with a reproducible order. Threads take turns in no
/// fixed order, and each turn costs more than the work.
#[cfg(test)]
pub(crate) mod in_place {
    use std::cell::Cell;

    thread_local! {
        static WANTED: Cell<bool> = const { Cell::new(false) };
    }

    /// Has all blocking work of this thread's tasks done in place from now on.
    pub(crate) fn want() {
        WANTED.set(true);
    }

    pub(super) fn is_wanted() -> bool {
        WANTED.get()
    }
}
