//! The end of all pods with their node.

use std::time::Duration;

use futures::future::join_all;
use tokio::time::{Instant, timeout_at};

use super::Pods;
use super::ask::ask;
use crate::command::Command;
use crate::driver::stop::SHUTDOWN_WITHIN;
use crate::view::{ContainerState, PodState, PodView};

/// The last part of the node's time. It is for guests' shutdowns and the ends of their VMs, and it makes up
/// for the time that was over before the pods' end began.
const LAST: Duration = SHUTDOWN_WITHIN.saturating_add(Duration::from_secs(10));

/// Part of the time before it for a VM's driver to kill what is left.
const KILLS: Duration = Duration::from_secs(1);

impl Pods {
    /// Ends all pods' VMs because the node goes down `within` this time. Containers are asked to end and
    /// killed after `grace`, in parallel. VMs that write meanwhile have until 20 s before the end. Then
    /// guests write their pending data to their disks. Pods stay on record as not ready, as the next daemon
    /// would find them. Pods being stopped are waited for.
    pub async fn power_off(&self, grace: Duration, within: Duration) {
        let written_by = Instant::now() + within.saturating_sub(LAST);
        let pods = self.pods();
        // A ready pod without one is still being recovered. Its containers' stops wait for that.
        let with_vm = pods.iter().filter(|pod| pod.state == PodState::Ready || pod.vmm_pid.is_some());
        join_all(with_vm.map(|pod| self.power_pod_off(pod, grace, written_by))).await;
    }

    async fn power_pod_off(&self, pod: &PodView, grace: Duration, written_by: Instant) {
        let containers = self.node.roster.containers();
        // A pod that is being stopped kills its containers itself.
        let is_ready = pod.state == PodState::Ready;
        let running = containers.iter().filter(|one| is_ready && one.pod_id == pod.id);
        let running = running.filter(|one| one.state == ContainerState::Running);
        let stopping = running.map(async |container| {
            if let Err(error) = self.stop_container(&container.id, grace).await {
                let container = &container.id;
                tracing::warn!(container, error = error.chain(), "a container does not end before its node");
            }
        });
        // A container that holds its VM up does not keep the guest from writing its other disks.
        if timeout_at(written_by - KILLS, join_all(stopping)).await.is_err() {
            tracing::warn!(pod = pod.id, "a pod's containers do not end in time before their node");
        }
        let Some(entry) = self.node.roster.pod(&pod.id) else { return };
        if let Err(error) = ask(&entry, |reply| Command::PowerOff(written_by, reply)).await {
            tracing::warn!(pod = pod.id, error = error.chain(), "a VM does not end before its node");
        }
    }
}
