//! Pods and containers of the upstream named by an answer or an event before any list has them. So a call
//! about one of them goes there at once, and lists include them even if the upstream goes down.

use bytes::Bytes;
use prost::Message;
use proto_cri::v1;

use super::Upstream;
use super::route::Listed;
use crate::runtime::now_ns;

impl Upstream {
    /// Notes the items named in the upstream's answer to this request. Other requests name none.
    pub(super) fn note_answer(&self, rpc: &str, request: &Bytes, answer: &Bytes) {
        let known = &self.known;
        match rpc {
            "RunPodSandbox" => {
                let id = decoded::<v1::RunPodSandboxResponse>(answer).pod_sandbox_id;
                known.note(Listed::Pods, &id, &pod(decoded(request), id.clone()));
            }
            "CreateContainer" => {
                let id = decoded::<v1::CreateContainerResponse>(answer).container_id;
                known.note(Listed::Containers, &id, &container(decoded(request), id.clone()));
            }
            "RemovePodSandbox" => {
                known.forget(Listed::Pods, &decoded::<v1::RemovePodSandboxRequest>(request).pod_sandbox_id);
            }
            "RemoveContainer" => {
                let id = decoded::<v1::RemoveContainerRequest>(request).container_id;
                known.forget(Listed::Containers, &id);
            }
            _ => {}
        }
    }

    /// Notes the items named in the upstream's event.
    pub(super) fn note_event(&self, event: &Bytes) {
        let event: v1::ContainerEventResponse = decoded(event);
        let pod = event.pod_sandbox_status.clone().unwrap_or_default();
        let is_gone = event.container_event_type() == v1::ContainerEventType::ContainerDeletedEvent;
        let gone = |id: &str| is_gone && id == event.container_id;
        if is_gone {
            self.known.forget(Listed::Pods, &event.container_id);
            self.known.forget(Listed::Containers, &event.container_id);
        }
        for status in event.containers_statuses.iter().filter(|status| !gone(&status.id)) {
            self.known.note(Listed::Containers, &status.id, &container_of(status.clone(), pod.id.clone()));
        }
        if !gone(&pod.id) {
            self.known.note(Listed::Pods, &pod.id.clone(), &pod_of(pod));
        }
    }
}

/// A newly started pod.
fn pod(request: v1::RunPodSandboxRequest, id: String) -> v1::PodSandbox {
    let config = request.config.unwrap_or_default();
    v1::PodSandbox {
        id,
        metadata: config.metadata,
        state: v1::PodSandboxState::SandboxReady.into(),
        created_at: now_ns(),
        labels: config.labels,
        annotations: config.annotations,
        runtime_handler: request.runtime_handler,
    }
}

/// A newly created container.
fn container(request: v1::CreateContainerRequest, id: String) -> v1::Container {
    let config = request.config.unwrap_or_default();
    v1::Container {
        id,
        pod_sandbox_id: request.pod_sandbox_id,
        metadata: config.metadata,
        image_ref: config.image.as_ref().map(|image| image.image.clone()).unwrap_or_default(),
        image: config.image,
        state: v1::ContainerState::ContainerCreated.into(),
        created_at: now_ns(),
        labels: config.labels,
        annotations: config.annotations,
        ..Default::default()
    }
}

fn pod_of(status: v1::PodSandboxStatus) -> v1::PodSandbox {
    v1::PodSandbox {
        id: status.id,
        metadata: status.metadata,
        state: status.state,
        created_at: status.created_at,
        labels: status.labels,
        annotations: status.annotations,
        runtime_handler: status.runtime_handler,
    }
}

fn container_of(status: v1::ContainerStatus, pod_sandbox_id: String) -> v1::Container {
    v1::Container {
        id: status.id,
        pod_sandbox_id,
        metadata: status.metadata,
        image: status.image,
        image_ref: status.image_ref,
        state: status.state,
        created_at: status.created_at,
        labels: status.labels,
        annotations: status.annotations,
        image_id: status.image_id,
    }
}

/// The message, or an empty one without any names if it is invalid.
fn decoded<M: Message + Default>(message: &Bytes) -> M {
    M::decode(message.clone()).unwrap_or_default()
}
