//! Pods' networks, by CNI.

use std::fmt::Debug;

use async_trait::async_trait;
use runtime_net::{Cni, NetError, PodNetwork, PodNetworkSpec};

use super::error::BackendError;

/// Pods' networks.
#[async_trait]
pub(crate) trait Network: Debug + Send + Sync {
    /// Sets the network up. After an error nothing is left, or a teardown removes it.
    async fn setup(&self, spec: &PodNetworkSpec) -> Result<PodNetwork, BackendError>;
    /// Takes the network down. The call is idempotent and needs the spec alone.
    async fn teardown(&self, spec: &PodNetworkSpec) -> Result<(), BackendError>;
    /// Ids of all pods with a network on the node, of any daemon.
    fn pod_ids(&self) -> Vec<String>;
    /// Has plugins clean up after removed networks.
    async fn collect_garbage(&self);
    /// Makes a namespace for the pool if more are wanted. Returns whether one was made.
    async fn make_spare(&self) -> Result<bool, BackendError>;
    /// Ends all namespaces in the pool.
    fn end_spares(&self);
    /// Number of namespaces in the pool.
    fn spares(&self) -> usize;
}

/// Networks by CNI plugins.
#[derive(Debug)]
pub(crate) struct CniNetwork(pub(crate) Cni);

#[async_trait]
impl Network for CniNetwork {
    async fn setup(&self, spec: &PodNetworkSpec) -> Result<PodNetwork, BackendError> {
        Ok(self.0.setup(spec).await?)
    }

    async fn teardown(&self, spec: &PodNetworkSpec) -> Result<(), BackendError> {
        Ok(self.0.teardown(spec).await?)
    }

    fn pod_ids(&self) -> Vec<String> {
        self.0.traces().into_iter().map(|trace| trace.pod_id).collect()
    }

    async fn collect_garbage(&self) {
        self.0.collect_garbage().await;
    }

    async fn make_spare(&self) -> Result<bool, BackendError> {
        Ok(self.0.make_spare().await?)
    }

    fn end_spares(&self) {
        self.0.end_spares();
    }

    fn spares(&self) -> usize {
        self.0.spares()
    }
}

impl From<NetError> for BackendError {
    fn from(error: NetError) -> Self {
        BackendError::failed(error)
    }
}
