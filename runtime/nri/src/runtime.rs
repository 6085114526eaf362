//! What stands behind the plugins: the runtime with its pods.

use std::fmt::Debug;

use async_trait::async_trait;
use proto_nri::nri::{Container, ContainerUpdate, PodSandbox};

/// The pods and containers that a plugin begins with.
#[derive(Clone, Debug, Default)]
pub struct Known {
    /// All pods.
    pub pods: Vec<PodSandbox>,
    /// All containers that have not ended.
    pub containers: Vec<Container>,
}

/// The runtime, as plugins need it.
#[async_trait]
pub trait Runtime: Debug + Send + Sync {
    /// What there is now.
    fn known(&self) -> Known;

    /// Changes containers' resources, and returns the updates that could not be made, but for those whose failure is to be ignored.
    /// Updates of containers that are not there are none.
    async fn update(&self, updates: Vec<ContainerUpdate>) -> Vec<ContainerUpdate>;
}
