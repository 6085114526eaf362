//! Ends: of a container, and of the VM under all of them.

use proto_vmm::StopReport;
use runtime_spec::ExitReason;

use super::Driver;
use crate::container::LOST_CODE;
use crate::container::watcher::Exited;
use crate::record::{ContainerStage, PodStage};
use crate::{clock, vm_end};

impl Driver {
    /// Notes that a container has ended, and that its output is in the log.
    pub(super) async fn exited(&mut self, exited: Exited) {
        let Exited { container_id: id, outcome } = exited;
        let ended = match outcome {
            Ok(end) => {
                let at = if end.exited_at_ns > 0 { end.exited_at_ns } else { clock::now_ns() };
                self.containers.exit(&id, at, end.exit_code, end.reason, "")
            }
            Err(why) => self.containers.exit(&id, clock::now_ns(), LOST_CODE, ExitReason::Error, why),
        };
        if !ended {
            return;
        }
        self.save_container(&id).await;
        self.pin().await;
        self.publish();
    }

    /// Notes that the VM is gone without having been asked. The network stays until the pod is stopped.
    pub(super) async fn vm_ended(&mut self, report: &StopReport) {
        let Some(live) = self.live.take() else { return };
        let why = live.why_ended(report);
        let what = vm_end::with_console(why.clone(), &report.console);
        tracing::warn!(pod = self.record.id, what, "a pod's VM ended");
        if self.status.stage != PodStage::Ready {
            return;
        }
        self.status.stage = PodStage::Dead;
        self.status.message = Some(what);
        self.save_status().await;
        self.publish();
        self.end_unwatched(&why).await;
    }

    /// Ends the containers that no watcher will report: the created and the unknown.
    async fn end_unwatched(&mut self, why: &str) {
        let watched = |stage| matches!(stage, ContainerStage::Running | ContainerStage::Exited);
        let idle = self.containers.ids_in(|stage| !watched(stage));
        for id in idle {
            self.end_lost(&id, why).await;
        }
    }

    /// Ends every container that has not ended.
    pub(super) async fn end_all(&mut self, why: &str) {
        for id in self.containers.ids() {
            self.end_lost(&id, why).await;
        }
    }

    pub(super) async fn end_lost(&mut self, id: &str, why: &str) {
        if self.containers.exit(id, clock::now_ns(), LOST_CODE, ExitReason::Error, why) {
            self.save_container(id).await;
        }
    }
}
