//! Pods and containers of the upstream that an answer or an event names, before a list has them: a call about one of them goes there
//! at once, and an upstream that goes down then leaves no list without them.

use bytes::Bytes;
use prost::Message;
use proto_cri::v1;

use super::Upstream;
use super::route::Listed;
use crate::runtime::now_ns;

impl Upstream {
    /// Takes what the upstream's answer to this request says of what it has. Other requests say nothing of that.
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

    /// Takes what the upstream's event says of what it has.
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

/// A pod that has just been started.
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

/// A container that has just been made.
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

/// The message; an empty one, which names nothing, where it is none.
fn decoded<M: Message + Default>(message: &Bytes) -> M {
    M::decode(message.clone()).unwrap_or_default()
}
