//! Sockets of the node, and the processes for connecting to them.

use std::fmt::Debug;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use async_trait::async_trait;
use runtime_blocking::Pool;
use runtime_connector::{ConnectError, ConnectorUser};
use tokio::sync::Notify;

use super::error::BackendError;
use crate::host::connector_cgroup;
use crate::sockets::find::{self, FoundSocket, Made};
use crate::volumes::directory_changes::{DirectoryChanges, Watch};

/// The program of a connector: this one, even if its file has changed.
const PROGRAM: &str = "/proc/self/exe";

/// Sockets, and connectors to them.
#[async_trait]
pub(crate) trait Sockets: Debug + Send + Sync {
    /// Finds the listed sockets behind mounts. The mounts come with their numbers.
    async fn find(
        &self,
        allowed: Vec<PathBuf>,
        mounts: Vec<(usize, PathBuf)>,
    ) -> Result<Vec<FoundSocket>, BackendError>;
    /// Checks which sockets exist. `follower` is notified when one may have appeared, until the watches are
    /// dropped.
    async fn look(&self, paths: Vec<PathBuf>, follower: Arc<Notify>) -> Result<Looked, BackendError>;
    /// Starts a container's connector.
    async fn start(&self, spec: &ConnectorSpec) -> Result<Arc<dyn Connector>, BackendError>;
    /// Removes the cgroup of a container's connector, with everything in it.
    async fn clear(&self, spec: &ConnectorSpec) -> Result<(), BackendError>;
}

/// A process for the connections of one container. Dropping the value ends it.
#[async_trait]
pub(crate) trait Connector: Debug + Send + Sync {
    /// Connects `stream` to the socket at `path`.
    async fn connect(&self, path: &Path, stream: OwnedFd) -> Result<(), ConnectError>;
    /// Whether the process has ended.
    fn is_lost(&self) -> bool;
}

/// A connector to start.
#[derive(Clone, Debug)]
pub(crate) struct ConnectorSpec {
    pub(crate) container_id: String,
    pub(crate) pod_id: String,
    /// The pod's cgroup, as the kubelet names it.
    pub(crate) cgroup_parent: String,
    pub(crate) user: ConnectorUser,
}

/// The result of a check of sockets.
#[derive(Debug)]
pub(crate) struct Looked {
    /// The existing sockets, in the order of their paths.
    pub(crate) made: Vec<Option<Made>>,
    pub(crate) _watches: Vec<Watch>,
}

/// The node's own. Checks run beside the async threads: a path may be on a slow file system.
#[derive(Debug)]
pub(crate) struct NodeSockets {
    pub(crate) paths: Pool,
    pub(crate) kernel: Pool,
    pub(crate) directories: Arc<DirectoryChanges>,
    pub(crate) cgroup_root: PathBuf,
}

#[async_trait]
impl Sockets for NodeSockets {
    async fn find(
        &self,
        allowed: Vec<PathBuf>,
        mounts: Vec<(usize, PathBuf)>,
    ) -> Result<Vec<FoundSocket>, BackendError> {
        Ok(self.paths.run(move || find::find(&allowed, &mounts)).await?)
    }

    async fn look(&self, paths: Vec<PathBuf>, follower: Arc<Notify>) -> Result<Looked, BackendError> {
        let directories = Arc::clone(&self.directories);
        let handle = tokio::runtime::Handle::current();
        let look = move || -> std::io::Result<Looked> {
            // The first watch creates the instance, and needs the async threads' reactor.
            let _context = handle.enter();
            let nearest = paths.iter().filter_map(|path| find::nearest_directory(path));
            let watches = nearest.map(|directory| directories.watch(directory, Arc::clone(&follower)));
            let _watches = watches.collect::<Result<_, _>>()?;
            Ok(Looked { made: paths.iter().map(|path| find::made(path)).collect(), _watches })
        };
        self.paths.run(look).await?.map_err(BackendError::failed)
    }

    async fn start(&self, spec: &ConnectorSpec) -> Result<Arc<dyn Connector>, BackendError> {
        let (root, making) = (self.cgroup_root.clone(), spec.clone());
        let cgroups = self
            .kernel
            .run(move || {
                let ConnectorSpec { cgroup_parent, pod_id, container_id, .. } = &making;
                connector_cgroup::make(&root, cgroup_parent, pod_id, container_id)
            })
            .await?
            .map_err(BackendError::failed)?;
        let spec = runtime_connector::ConnectorSpec {
            program: Path::new(PROGRAM),
            cgroups: &cgroups,
            user: &spec.user,
        };
        let started = runtime_connector::Connector::start(spec).await.map_err(BackendError::failed)?;
        Ok(Arc::new(ConnectorProcess(started)))
    }

    async fn clear(&self, spec: &ConnectorSpec) -> Result<(), BackendError> {
        let (root, spec) = (self.cgroup_root.clone(), spec.clone());
        let clear = move || {
            let ConnectorSpec { cgroup_parent, pod_id, container_id, .. } = &spec;
            connector_cgroup::remove(&root, cgroup_parent, pod_id, Some(container_id))
        };
        self.kernel.run(clear).await?.map_err(BackendError::failed)
    }
}

/// A process of our own.
#[derive(Debug)]
struct ConnectorProcess(runtime_connector::Connector);

#[async_trait]
impl Connector for ConnectorProcess {
    async fn connect(&self, path: &Path, stream: OwnedFd) -> Result<(), ConnectError> {
        self.0.connect(path, stream).await
    }

    fn is_lost(&self) -> bool {
        self.0.is_lost()
    }
}
