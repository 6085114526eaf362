//! Notifications to plugins: events without questions.

use async_trait::async_trait;
use proto_nri::nri::Event::{
    POST_CREATE_CONTAINER, POST_START_CONTAINER, REMOVE_CONTAINER, REMOVE_POD_SANDBOX, STOP_POD_SANDBOX,
};
use runtime_nri::Occurrence;
use runtime_pod::{ContainerView, EventKind, PodView};

use super::asking::Flight;
use super::out::{container_out, pod_out};
use super::plugins::NriPlugins;

#[async_trait]
impl runtime_pod::Plugins for NriPlugins {
    fn hears(&self) -> bool {
        !self.plugins.is_alone()
    }

    fn begin(&self) -> Box<dyn runtime_pod::Asking> {
        Box::new(Flight::new(self))
    }

    fn notice(&self, kind: EventKind, pod: &PodView, container: Option<&ContainerView>) {
        let Some(container) = container else {
            // A pod's other events are sent as they happen.
            if kind == EventKind::Deleted {
                self.plugins.notice(Occurrence::of_pod(REMOVE_POD_SANDBOX, pod_out(pod)));
            }
            return;
        };
        let event = match kind {
            EventKind::Created => POST_CREATE_CONTAINER,
            EventKind::Started => POST_START_CONTAINER,
            EventKind::Deleted => REMOVE_CONTAINER,
            EventKind::Stopped => {
                return self.plugins.container_stopped(pod_out(pod), container_out(container));
            }
        };
        self.plugins.notice(Occurrence::of_container(event, pod_out(pod), container_out(container)));
    }

    async fn pod_stops(&self, pod: &PodView) {
        self.plugins.notice_first(Occurrence::of_pod(STOP_POD_SANDBOX, pod_out(pod))).await;
    }
}
