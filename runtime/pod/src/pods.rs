//! The handle to all pods.

use std::sync::Arc;
use std::time::Duration;

use runtime_spec::{ContainerSpec, PodSpec};

use crate::{ContainerView, ExecOutput, Phase, PodError, PodView, PodsConfig, VmReport};

/// All pods of this node. Cheap to clone. Dropping a call's future does not stop the work.
#[derive(Clone, Debug)]
pub struct Pods {
    #[allow(dead_code)]
    inner: Arc<PodsConfig>,
}

impl Pods {
    /// Starts a pod and gives its id. The same (namespace, name, uid, attempt) joins the first call.
    pub async fn run(&self, _spec: PodSpec) -> Result<String, PodError> {
        Err(PodError::internal("starting pods"))
    }

    /// Kills its containers and its machine, takes its network down. Idempotent; unknown ids are fine.
    pub async fn stop(&self, _pod_id: &str) -> Result<(), PodError> {
        Err(PodError::internal("stopping pods"))
    }

    /// Stops and forgets it and its containers. Idempotent; unknown ids are fine.
    pub async fn remove(&self, _pod_id: &str) -> Result<(), PodError> {
        Err(PodError::internal("removing pods"))
    }

    /// A pod by its whole id.
    pub fn pod(&self, _pod_id: &str) -> Option<Arc<PodView>> {
        None
    }

    /// All pods, oldest first.
    pub fn pods(&self) -> Vec<Arc<PodView>> {
        Vec::new()
    }

    /// Builds a container and holds it before its program; gives its id.
    pub async fn create_container(&self, _pod_id: &str, _spec: ContainerSpec) -> Result<String, PodError> {
        Err(PodError::internal("creating containers"))
    }

    /// Lets a created container's program run.
    pub async fn start_container(&self, _container_id: &str) -> Result<(), PodError> {
        Err(PodError::internal("starting containers"))
    }

    /// Asks it to end, and kills it after `grace`. Returns when it has ended. Idempotent; unknown ids are fine.
    pub async fn stop_container(&self, _container_id: &str, _grace: Duration) -> Result<(), PodError> {
        Err(PodError::internal("stopping containers"))
    }

    /// Kills and forgets it; its log stays. Idempotent; unknown ids are fine.
    pub async fn remove_container(&self, _container_id: &str) -> Result<(), PodError> {
        Err(PodError::internal("removing containers"))
    }

    /// A container by its whole id.
    pub fn container(&self, _container_id: &str) -> Option<Arc<ContainerView>> {
        None
    }

    /// All containers, oldest first.
    pub fn containers(&self) -> Vec<Arc<ContainerView>> {
        Vec::new()
    }

    /// Runs a command in a running container. Without a time-out it may run for ever.
    pub async fn exec_sync(
        &self,
        _container_id: &str,
        _command: Vec<String>,
        _timeout: Option<Duration>,
    ) -> Result<ExecOutput, PodError> {
        Err(PodError::internal("running a command"))
    }

    /// Goes on logging in a new file, after the old one was renamed.
    pub async fn reopen_log(&self, _container_id: &str) -> Result<(), PodError> {
        Err(PodError::internal("reopening a log"))
    }

    /// The measured steps of the pod's start.
    pub fn phases(&self, _pod_id: &str) -> Result<Vec<Phase>, PodError> {
        Err(PodError::internal("reading phases"))
    }

    /// What its machine costs.
    pub async fn vm_stats(&self, _pod_id: &str) -> Result<VmReport, PodError> {
        Err(PodError::internal("asking the VM"))
    }

    /// The last 64 KiB of its guest's console.
    pub async fn console(&self, _pod_id: &str) -> Result<String, PodError> {
        Err(PodError::internal("asking the VM"))
    }
}
