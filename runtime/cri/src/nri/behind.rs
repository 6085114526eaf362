//! Plugins' requests to pods: the list of pods and containers, and updates of containers' limits.

use async_trait::async_trait;
use proto_nri::nri::ContainerUpdate;
use runtime_nri::{Known, Runtime};
use runtime_pod::{ContainerState, Pods};

use super::out::{container_out, pod_out};
use super::plugins::NriPlugins;
use super::resources::resources_in;

#[async_trait]
impl Runtime for NriPlugins {
    fn known(&self) -> Known {
        let Some(pods) = self.pods.get() else { return Known::default() };
        let containers = pods.containers();
        let alive = containers
            .iter()
            .filter(|container| matches!(container.state, ContainerState::Created | ContainerState::Running));
        Known {
            pods: pods.pods().iter().map(|pod| pod_out(pod)).collect(),
            containers: alive.map(|container| container_out(container)).collect(),
        }
    }

    async fn update(&self, updates: Vec<ContainerUpdate>) -> Vec<ContainerUpdate> {
        let Some(pods) = self.pods.get() else { return updates };
        let mut failed = Vec::new();
        for update in updates {
            if let Err(why) = self.update_one(pods, &update).await {
                tracing::warn!(container = update.container_id, why, "an NRI plugin's update cannot be made");
                if !update.ignore_failure {
                    failed.push(update);
                }
            }
        }
        failed
    }
}

impl NriPlugins {
    /// A missing container needs no update.
    async fn update_one(&self, pods: &Pods, update: &ContainerUpdate) -> Result<(), String> {
        let Some(container) = pods.container(&update.container_id) else { return Ok(()) };
        let Some(resources) = update.linux.resources.as_ref() else { return Ok(()) };
        let (resources, unsupported) = resources_in(resources);
        self.unsupported.judge(&container.spec.name, unsupported)?;
        pods.limit_container(&container.id, resources).await.map_err(|error| error.chain())
    }
}
