//! Records the subject of a call on its span: pod, container, image. Nothing is recorded if spans are not
//! collected.

use proto_cri::v1;
use runtime_pod::Pods;
use runtime_spec::{ContainerSpec, PodSpec};
use tracing::Span;

use crate::traced;

/// A pod to be created.
pub(crate) fn new_pod(spec: &PodSpec) {
    if let Some(call) = traced::current() {
        call.record("podvisor.handler", &*spec.runtime_handler);
        note_pod(&call, spec);
    }
}

/// A pod to be created by another runtime.
pub(crate) fn pod_elsewhere(request: &v1::RunPodSandboxRequest) {
    let metadata = request.config.as_ref().and_then(|config| config.metadata.as_ref());
    if let (Some(call), Some(metadata)) = (traced::current(), metadata) {
        call.record("podvisor.handler", &*request.runtime_handler);
        note_names(&call, &metadata.namespace, &metadata.name, &metadata.uid, metadata.attempt);
    }
}

/// The id of a pod.
pub(crate) fn pod_id(id: &str) {
    if let Some(call) = traced::current() {
        call.record("podvisor.pod.id", id);
    }
}

/// A pod by its id, or by the beginning of it.
pub(crate) fn pod(pods: &Pods, id: &str) {
    let Some(call) = traced::current() else { return };
    match pods.pod(id) {
        Some(pod) => {
            call.record("podvisor.pod.id", &*pod.id);
            note_pod(&call, &pod.spec);
        }
        None => {
            call.record("podvisor.pod.id", id);
        }
    }
}

/// A container to be created.
pub(crate) fn new_container(spec: &ContainerSpec) {
    if let Some(call) = traced::current() {
        note_container(&call, spec);
    }
}

/// The id of a container.
pub(crate) fn container_id(id: &str) {
    if let Some(call) = traced::current() {
        call.record("container.id", id);
    }
}

/// A container by its id, or by the beginning of it, with its pod.
pub(crate) fn container(pods: &Pods, id: &str) {
    let Some(call) = traced::current() else { return };
    match pods.container(id) {
        Some(container) => {
            call.record("container.id", &*container.id);
            note_container(&call, &container.spec);
            pod(pods, &container.pod_id);
        }
        None => {
            call.record("container.id", id);
        }
    }
}

/// An image by any of its names.
pub(crate) fn image(name: &str) {
    if let Some(call) = traced::current() {
        call.record("container.image.name", name);
    }
}

fn note_pod(call: &Span, spec: &PodSpec) {
    note_names(call, &spec.namespace, &spec.name, &spec.uid, spec.attempt);
}

fn note_names(call: &Span, namespace: &str, name: &str, uid: &str, attempt: u32) {
    call.record("k8s.namespace.name", namespace);
    call.record("k8s.pod.name", name);
    call.record("k8s.pod.uid", uid);
    call.record("podvisor.pod.attempt", i64::from(attempt));
}

fn note_container(call: &Span, spec: &ContainerSpec) {
    call.record("k8s.container.name", &*spec.name);
    call.record("k8s.container.restart_count", i64::from(spec.attempt));
    call.record("container.image.name", &*spec.image);
}
