//! Events to `ContainerEventResponse`. A pod's own events carry the pod's id as `container_id`.

use proto_cri::v1;
use runtime_pod::{Event, EventKind};

use super::{container_status, pod_status};

/// The event. The kubelet drops an event without a pod's status (kubelet `pleg/evented.go`).
pub(crate) fn event_out(event: &Event) -> v1::ContainerEventResponse {
    let kind = match event.kind {
        EventKind::Created => v1::ContainerEventType::ContainerCreatedEvent,
        EventKind::Started => v1::ContainerEventType::ContainerStartedEvent,
        EventKind::Stopped => v1::ContainerEventType::ContainerStoppedEvent,
        EventKind::Deleted => v1::ContainerEventType::ContainerDeletedEvent,
    };
    v1::ContainerEventResponse {
        container_id: event.id.clone(),
        container_event_type: kind.into(),
        created_at: event.at_ns,
        pod_sandbox_status: Some(pod_status(&event.pod)),
        containers_statuses: event.containers.iter().map(|container| container_status(container)).collect(),
    }
}

#[cfg(test)]
mod tests {
    use runtime_pod::PodView;

    use super::*;

    #[test]
    fn an_event_carries_its_pods_status_even_when_the_pod_is_gone() {
        let pod = PodView { id: "p1".into(), ..Default::default() };
        let event = Event {
            id: "p1".into(),
            kind: EventKind::Deleted,
            at_ns: 7,
            pod: pod.into(),
            containers: Vec::new(),
        };
        let sent = event_out(&event);
        assert_eq!((sent.container_id.as_str(), sent.created_at), ("p1", 7));
        assert_eq!(sent.container_event_type(), v1::ContainerEventType::ContainerDeletedEvent);
        assert!(sent.pod_sandbox_status.unwrap().metadata.is_some());
    }
}
