//! Ends: of a container, and of the VM under all of them.

use proto_vmm::StopReport;
use runtime_spec::ExitReason;

use super::Driver;
use crate::container::LOST_CODE;
use crate::container::watcher::Exited;
use crate::record::{ContainerStage, PodStage};
use crate::{clock, counters, vm_end};

impl Driver {
    /// Notes a container's end. Its output is in the log.
    pub(super) async fn exited(&mut self, exited: Exited) {
        let Exited { container_id: id, outcome } = exited;
        let ended = match outcome {
            Ok(end) => {
                let at = if end.exited_at_ns > 0 { end.exited_at_ns } else { clock::now_ns() };
                self.containers.exit(&id, at, end.exit_code, end.reason, "")
            }
            Err(why) => {
                let (reason, why) = self.loss(why).await;
                self.containers.exit(&id, clock::now_ns(), LOST_CODE, reason, why)
            }
        };
        if !ended {
            return;
        }
        self.withdraw_sockets(&id);
        self.save_container(&id).await;
        self.pin().await;
        self.publish();
    }

    /// Notes an unexpected end of the VM. The network stays until the pod is stopped.
    pub(super) async fn vm_ended(&mut self, report: &StopReport) {
        let Some(live) = self.live.take() else { return };
        self.plugs.vm_gone();
        if self.sockets.is_some() {
            self.end_connectors().await;
        }
        counters::vm_lost();
        let (reason, why) = self.loss(live.why_ended(report)).await;
        let what = vm_end::with_console(why.clone(), &report.console);
        tracing::warn!(pod = self.record.id, what, "a pod's VM ended");
        if self.status.stage != PodStage::Ready {
            return;
        }
        self.status.stage = PodStage::Dead;
        self.status.message = Some(what);
        self.save_status().await;
        self.publish();
        self.end_unwatched(reason, &why).await;
    }

    /// Reason and message of containers lost with their VM. If the node's kernel killed the VMM for lack of
    /// memory, both say so.
    pub(super) async fn loss(&self, why: String) -> (ExitReason, String) {
        match self.node.oom_kill(&self.record).await {
            // A dead pod's own message already says it.
            Some(killed) if why.contains(&killed) => (ExitReason::OomKilled, why),
            Some(killed) => (ExitReason::OomKilled, format!("{why}; {killed}")),
            None => (ExitReason::Error, why),
        }
    }

    /// Ends the containers without a watcher: the created and the unknown.
    async fn end_unwatched(&mut self, reason: ExitReason, why: &str) {
        let watched = |stage| matches!(stage, ContainerStage::Running | ContainerStage::Exited);
        let idle = self.containers.ids_in(|stage| !watched(stage));
        for id in idle {
            self.end_lost(&id, reason, why).await;
        }
    }

    /// Ends every container not yet exited.
    pub(super) async fn end_all(&mut self, reason: ExitReason, why: &str) {
        for id in self.containers.ids() {
            self.end_lost(&id, reason, why).await;
        }
    }

    pub(super) async fn end_lost(&mut self, id: &str, reason: ExitReason, why: &str) {
        if self.containers.exit(id, clock::now_ns(), LOST_CODE, reason, why) {
            self.save_container(id).await;
        }
    }
}
