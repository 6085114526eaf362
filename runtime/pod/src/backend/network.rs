//! Pods' networks, by CNI.

use std::fmt::Debug;

use async_trait::async_trait;
use runtime_net::{Cni, NetError, PodNetwork, PodNetworkSpec};

use super::error::BackendError;

/// Pods' networks.
#[async_trait]
pub(crate) trait Network: Debug + Send + Sync {
    /// Sets the network up. After an error nothing is left, or a teardown takes it away.
    async fn setup(&self, spec: &PodNetworkSpec) -> Result<PodNetwork, BackendError>;
    /// Takes the network down. The call is idempotent and needs the spec alone.
    async fn teardown(&self, spec: &PodNetworkSpec) -> Result<(), BackendError>;
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
}

impl From<NetError> for BackendError {
    fn from(error: NetError) -> Self {
        BackendError::failed(error)
    }
}
