//! The end of all pods with their node.

use std::time::Duration;

use futures::future::join_all;

use super::Pods;
use super::ask::ask;
use crate::command::Command;
use crate::view::{ContainerState, PodState, PodView};

impl Pods {
    /// Ends all pods' VMs because the node goes down. Containers are asked to end and killed after `grace`,
    /// in parallel. Then guests write their pending data to their disks. Pods stay on record as not ready, as
    /// the next daemon would find them.
    pub async fn power_off(&self, grace: Duration) {
        let pods = self.pods();
        let ready = pods.iter().filter(|pod| pod.state == PodState::Ready);
        join_all(ready.map(|pod| self.power_pod_off(pod, grace))).await;
    }

    async fn power_pod_off(&self, pod: &PodView, grace: Duration) {
        let containers = self.node.roster.containers();
        let running = containers.iter().filter(|one| one.pod_id == pod.id);
        let running = running.filter(|one| one.state == ContainerState::Running);
        let stopping = running.map(async |container| {
            if let Err(error) = self.stop_container(&container.id, grace).await {
                let container = &container.id;
                tracing::warn!(container, error = error.chain(), "a container does not end before its node");
            }
        });
        join_all(stopping).await;
        let Some(entry) = self.node.roster.pod(&pod.id) else { return };
        if let Err(error) = ask(&entry, Command::PowerOff).await {
            tracing::warn!(pod = pod.id, error = error.chain(), "a VM does not end before its node");
        }
    }
}
