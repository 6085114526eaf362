//! What all pods of this node share, and the paths of each.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use runtime_net::PodNetworkSpec;
use runtime_spec::{GuestPaths, HandlerConfig, PodSpec};
use runtime_store::{Batch, Store, Table};

use crate::outside::{Disks, ImageSource, Machines, Network, Shares};
use crate::record::{ContainerRecord, ContainerStatus, PodRecord, PodStatus};
use crate::roster::Roster;
use crate::{PodError, PodErrorKind, shared};

/// The agent's paths, for OCI specs.
pub(crate) const GUEST_PATHS: GuestPaths = GuestPaths {
    resolv_conf: proto_agent::guest_path::RESOLV_CONF,
    hosts: proto_agent::guest_path::HOSTS,
    hostname: proto_agent::guest_path::HOSTNAME,
    shm: proto_agent::guest_path::SHM,
    pid_namespace: proto_agent::guest_path::POD_PID_NAMESPACE,
    cgroup_parent: proto_agent::guest_path::CGROUP_PARENT,
    shared: proto_agent::guest_path::SHARED,
    image_volumes: proto_agent::guest_path::IMAGE_VOLUMES,
};

/// Where things are; the part of the configuration that is plain data.
#[derive(Clone, Debug)]
pub(crate) struct Places {
    pub(crate) state_dir: PathBuf,
    pub(crate) run_dir: PathBuf,
    pub(crate) kernel: PathBuf,
    pub(crate) root_image: PathBuf,
    pub(crate) scratch_template: PathBuf,
    /// Mount point of cgroup v2.
    pub(crate) cgroup_root: PathBuf,
    /// The host's name servers, for pods that name none.
    pub(crate) resolv_conf: PathBuf,
}

/// What all pods of this node share.
/// Digits of a pod's id that name its run directory: 96 bits, as good as unique.
const RUN_NAME_DIGITS: usize = 24;

/// The run directory's name of a pod, or of what was one.
pub(crate) fn run_name(id: &str) -> &str {
    id.get(..RUN_NAME_DIGITS).unwrap_or(id)
}

#[derive(Debug)]
pub(crate) struct Node {
    pub(crate) places: Places,
    pub(crate) handlers: Vec<HandlerConfig>,
    pub(crate) default_handler: Option<String>,
    pub(crate) store: Store,
    pub(crate) roster: Roster,
    pub(crate) network: Arc<dyn Network>,
    pub(crate) machines: Arc<dyn Machines>,
    pub(crate) images: Arc<dyn ImageSource>,
    pub(crate) shares: Arc<dyn Shares>,
    pub(crate) disks: Arc<dyn Disks>,
}

impl Node {
    /// The handler of this name; the default one for the empty name.
    pub(crate) fn handler(&self, name: &str) -> Result<&HandlerConfig, PodError> {
        let sought = if name.is_empty() { self.default_handler.as_deref().unwrap_or_default() } else { name };
        self.handlers.iter().find(|handler| handler.name == sought).ok_or_else(|| {
            let known: Vec<_> = self.handlers.iter().map(|handler| handler.name.as_str()).collect();
            let text = format!("runtime_handler: no handler {name:?} here; there are: {}", known.join(", "));
            PodError::new(PodErrorKind::InvalidArgument, text)
        })
    }

    pub(crate) fn pod_state_dir(&self, id: &str) -> PathBuf {
        self.places.state_dir.join("pods").join(id)
    }

    /// Named by the beginning of the id: a socket's path has 107 bytes (unix(7)), and the run directory
    /// needs its share of them.
    pub(crate) fn pod_run_dir(&self, id: &str) -> PathBuf {
        self.places.run_dir.join("pods").join(run_name(id))
    }

    /// What the pod's machine can reach of the host's files.
    pub(crate) fn pod_shared_dir(&self, id: &str) -> PathBuf {
        self.pod_run_dir(id).join(shared::NAME)
    }

    /// Takes the run directory away, with what is mounted in it. One that is not there is no error.
    pub(crate) fn remove_run_dir(&self, id: &str) -> std::io::Result<()> {
        shared::remove(&self.pod_shared_dir(id))?;
        remove_dir(&self.pod_run_dir(id))
    }

    pub(crate) fn scratch_path(&self, id: &str) -> PathBuf {
        self.pod_state_dir(id).join(crate::scratch::DISK)
    }

    pub(crate) fn acks_path(&self, pod_id: &str, container_id: &str) -> PathBuf {
        self.pod_state_dir(pod_id).join(format!("{container_id}.acks"))
    }

    /// Commits beside the async threads, since it waits for the disk.
    pub(crate) async fn commit(&self, batch: Batch) -> Result<(), PodError> {
        let store = self.store.clone();
        blocking("writing down how far it is", move || store.commit(batch)).await
    }

    pub(crate) async fn put_pod_status(&self, id: &str, status: &PodStatus) -> Result<(), PodError> {
        self.commit(batched(Batch::new().put(Table::PodStatuses, id, status))?).await
    }

    pub(crate) async fn put_container_status(
        &self,
        id: &str,
        status: &ContainerStatus,
    ) -> Result<(), PodError> {
        self.commit(batched(Batch::new().put(Table::ContainerStatuses, id, status))?).await
    }

    pub(crate) async fn put_new_pod(&self, record: &PodRecord, status: &PodStatus) -> Result<(), PodError> {
        let batch = batched(Batch::new().put(Table::PodRecords, &record.id, record))?;
        self.commit(batched(batch.put(Table::PodStatuses, &record.id, status))?).await
    }

    pub(crate) async fn put_new_container(
        &self,
        record: &ContainerRecord,
        status: &ContainerStatus,
    ) -> Result<(), PodError> {
        let batch = batched(Batch::new().put(Table::ContainerRecords, &record.id, record))?;
        self.commit(batched(batch.put(Table::ContainerStatuses, &record.id, status))?).await
    }

    /// Forgets a pod and these containers of it, all at once.
    pub(crate) async fn forget(&self, pod_id: Option<&str>, containers: &[String]) -> Result<(), PodError> {
        let mut batch = Batch::new();
        for id in containers {
            batch = batch.delete(Table::ContainerRecords, id).delete(Table::ContainerStatuses, id);
        }
        if let Some(id) = pod_id {
            batch = batch.delete(Table::PodRecords, id).delete(Table::PodStatuses, id);
        }
        self.commit(batch).await
    }
}

fn batched(batch: Result<Batch, runtime_store::StoreError>) -> Result<Batch, PodError> {
    batch.map_err(|error| PodError::internal("writing down how far it is").because(error))
}

/// Runs blocking work beside the async threads.
pub(crate) async fn blocking<T, E>(
    doing: &str,
    work: impl FnOnce() -> Result<T, E> + Send + 'static,
) -> Result<T, PodError>
where
    T: Send + 'static,
    E: std::error::Error + Send + Sync + 'static,
{
    match tokio::task::spawn_blocking(work).await {
        Ok(Ok(value)) => Ok(value),
        Ok(Err(error)) => Err(PodError::internal(doing).because(error)),
        Err(error) => Err(PodError::internal(doing).because(error)),
    }
}

/// Removes a directory and what is in it; one that is not there is no error.
pub(crate) fn remove_dir(path: &Path) -> std::io::Result<()> {
    match std::fs::remove_dir_all(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// What the pod asks of its network.
pub(crate) fn network_spec(id: &str, spec: &PodSpec) -> PodNetworkSpec {
    PodNetworkSpec {
        pod_id: id.to_owned(),
        name: spec.name.clone(),
        namespace: spec.namespace.clone(),
        uid: spec.uid.clone(),
        port_mappings: spec.port_mappings.clone(),
        ..PodNetworkSpec::default()
    }
}
