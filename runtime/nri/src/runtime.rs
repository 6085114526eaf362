//! The runtime behind the plugins, with its pods.

use std::fmt::Debug;

use async_trait::async_trait;
use proto_nri::nri::{Container, ContainerUpdate, PodSandbox};

/// The existing pods and containers, for a joining plugin.
#[derive(Clone, Debug, Default)]
pub struct Known {
    /// All pods.
    pub pods: Vec<PodSandbox>,
    /// All containers, except those that have ended.
    pub containers: Vec<Container>,
}

/// The runtime, as plugins need it.
#[async_trait]
pub trait Runtime: Debug + Send + Sync {
    /// The existing pods and containers.
    fn known(&self) -> Known;

    /// Changes containers' resources. Returns the failed updates, except those marked to ignore failure.
    /// Updates of unknown containers are ignored.
    async fn update(&self, updates: Vec<ContainerUpdate>) -> Vec<ContainerUpdate>;
}
