//! The stop of a pod behind its last container's end, if the pod asks for it. Nobody else would stop it.

use runtime_spans::{always, span};

use super::Driver;
use crate::record::{ContainerStage, PodStage};

impl Driver {
    /// Stops the pod if it stops with its containers, and all have ended. A failed stop is tried again when
    /// somebody asks for it, as any other.
    pub(super) async fn stop_if_all_ended(&mut self) {
        let is_up = matches!(self.status.stage, PodStage::Ready | PodStage::Dead);
        if !is_up || !self.record.spec.stops_with_containers() || !self.have_all_ended() {
            return;
        }
        let pod = &self.record.id;
        tracing::debug!(pod, "a pod is stopped behind its last container's end");
        if let Err(error) = always(span!("stop behind the containers"), self.stop()).await {
            tracing::error!(pod = self.record.id, error = error.chain(), "an ended pod is not stopped");
        }
    }

    /// Whether there are containers, and all have ended.
    fn have_all_ended(&self) -> bool {
        let ended = self.containers.ids_in(|stage| stage == ContainerStage::Exited).len();
        ended > 0 && ended == self.containers.ids().len()
    }
}
