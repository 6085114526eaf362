//! Host paths in pods' shared directories.

use std::fmt::Debug;
use std::path::{Path, PathBuf};

use async_trait::async_trait;
use runtime_blocking::{Caller, Parts, Pool};
use runtime_share::{Below, Bind, MountNamespace, ShareError};

use super::error::{BackendError, BackendErrorKind};
use crate::container::mounts::{self, Use};
use crate::host::vmm_process;
use crate::record::{JoinedMount, SharedPlace, VmmProcess};

/// Binds of host paths, by containers.
#[async_trait]
pub(crate) trait Shares: Debug + Send + Sync {
    /// Binds each path to its number in the container's directory: all or none.
    async fn bind(&self, place: ContainerDir, binds: Vec<(usize, Bind)>) -> Result<(), BackendError>;
    /// For each mount, the first of its candidates with the same files.
    async fn find_same(
        &self,
        pod: ContainerDir,
        sought: Vec<SoughtPlace>,
    ) -> Result<Vec<JoinedMount>, BackendError>;
    /// Removes the binds with these numbers. The call is idempotent.
    async fn unbind(&self, place: ContainerDir, numbers: Vec<usize>) -> Result<(), BackendError>;
}

/// A mount, and the places that it may use.
#[derive(Clone, Debug)]
pub(crate) struct SoughtPlace {
    pub(crate) number: usize,
    pub(crate) source: PathBuf,
    pub(crate) candidates: Vec<(SharedPlace, Use)>,
}

impl SoughtPlace {
    fn find(self, viewer: u32, shared: &Path) -> Option<JoinedMount> {
        let SoughtPlace { number, source, candidates } = self;
        let is_same = |(place, usable): &(SharedPlace, Use)| {
            let access = mounts::access(&place.mount);
            let below = runtime_share::compare(viewer, shared, place.key(), &source, access);
            match below.inspect_err(|error| tracing::debug!(?source, %error, "a place is not compared")) {
                Ok(Some(Below::Nothing)) => true,
                Ok(Some(Below::Mounts)) => *usable == Use::AsIs,
                // A missing source is refused, or made, where it is bound.
                Ok(None) | Err(_) => false,
            }
        };
        let (place, _) = candidates.into_iter().find(is_same)?;
        Some(JoinedMount { number, place })
    }
}

/// A container's directory in its pod's shared directory.
#[derive(Clone, Debug)]
pub(crate) struct ContainerDir {
    pub(crate) shared: PathBuf,
    pub(crate) container: String,
    /// The VMM of the share with the binds; `None` if the pod has none any more.
    pub(crate) vmm: Option<VmmProcess>,
}

impl ContainerDir {
    /// The mount namespace of the VMM's share; `None` if the VMM has ended.
    fn viewer(&self) -> std::io::Result<Option<MountNamespace>> {
        let Some(vmm) = self.vmm else { return Ok(None) };
        // Opened before the check, so the namespace belongs to the checked process.
        let viewer = MountNamespace::of(runtime_vm::with_volumes(vmm.pid));
        if vmm_process::alive(vmm) { viewer.map(Some) } else { Ok(None) }
    }
}

/// Threads for the binds of one pod. The kubelet tries a container again and again, and each try on an
/// unreachable server keeps a thread.
const POD_THREADS: usize = 4;

/// The kernel's mounts. Mounting runs beside the async threads: a path may be on a slow file system.
#[derive(Debug)]
pub(crate) struct HostShares {
    pool: Pool,
    /// The pods' parts of it, by their shared directories.
    parts: Parts,
}

impl HostShares {
    pub(crate) fn new(pool: Pool) -> HostShares {
        let parts = Parts::new(pool.clone(), "this pod's paths on the node", POD_THREADS);
        HostShares { pool, parts }
    }
}

#[async_trait]
impl Shares for HostShares {
    async fn bind(&self, place: ContainerDir, binds: Vec<(usize, Bind)>) -> Result<(), BackendError> {
        let part = self.parts.of(&place.shared.to_string_lossy());
        // A caller that gives up removes the binds, and the work may go on much later.
        let work = move |caller: Caller| -> Result<(), BackendError> {
            let viewer = place.viewer()?.ok_or_else(|| BackendError::failed("the pod's VMM has ended"))?;
            let binds = binds.iter().map(|(number, bind)| (*number, bind));
            let given_up = || caller.has_given_up();
            Ok(runtime_share::bind_all(&viewer, &place.shared, &place.container, binds, given_up)?)
        };
        part.run_for(work).await?
    }

    async fn find_same(
        &self,
        pod: ContainerDir,
        sought: Vec<SoughtPlace>,
    ) -> Result<Vec<JoinedMount>, BackendError> {
        let part = self.parts.of(&pod.shared.to_string_lossy());
        let work = move |_: Caller| {
            let Some(vmm) = pod.vmm else { return Vec::new() };
            let viewer = runtime_vm::with_volumes(vmm.pid);
            let found: Vec<_> = sought.into_iter().filter_map(|one| one.find(viewer, &pod.shared)).collect();
            // Its number may be another process's by now.
            if vmm_process::alive(vmm) { found } else { Vec::new() }
        };
        Ok(part.run_for(work).await?)
    }

    async fn unbind(&self, place: ContainerDir, numbers: Vec<usize>) -> Result<(), BackendError> {
        let work = move || -> Result<(), BackendError> {
            let viewer = place.viewer()?;
            Ok(runtime_share::unbind_all(viewer.as_ref(), &place.shared, &place.container, numbers)?)
        };
        // Beside the pod's part: it waits for no server, and the binds of a failed try must go.
        self.pool.run(work).await?
    }
}

impl From<ShareError> for BackendError {
    fn from(error: ShareError) -> Self {
        let kind = if error.is_refusal() { BackendErrorKind::Invalid } else { BackendErrorKind::Failed };
        BackendError::new(kind, error)
    }
}
