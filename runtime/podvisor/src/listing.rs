//! The node's pods with their containers, for lists and for lookups by name. Built from CRI's lists.

use std::collections::BTreeMap;

use proto_cri::v1;
use serde::{Serialize, Serializer};

use crate::daemon::{Daemon, DaemonError, NodeStatus};
use crate::one_by_one::Subject;
use crate::show::units;

/// Labels with the owner of a container, set by the kubelet (kubelet `pkg/types/labels.go`).
const POD_NAME: &str = "io.kubernetes.pod.name";
const POD_NAMESPACE: &str = "io.kubernetes.pod.namespace";

/// The runtime of a pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) enum Runtime {
    /// Podvisor itself, in a VM.
    Vm,
    /// The runtime behind Podvisor.
    Upstream,
    /// The daemon is too old to report it.
    Unknown,
}

/// A pod.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Pod {
    pub(crate) id: String,
    pub(crate) namespace: String,
    pub(crate) name: String,
    pub(crate) uid: String,
    pub(crate) attempt: u32,
    pub(crate) ready: bool,
    /// Whether its writes wait because the node's disk is full.
    pub(crate) waits_for_room: bool,
    #[serde(serialize_with = "as_time")]
    pub(crate) created_at: i64,
    pub(crate) runtime: Runtime,
    /// The requested handler; empty for the default one.
    pub(crate) handler: String,
    pub(crate) labels: BTreeMap<String, String>,
    /// Oldest first.
    pub(crate) containers: Vec<Container>,
}

/// A container.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Container {
    pub(crate) id: String,
    pub(crate) name: String,
    pub(crate) attempt: u32,
    pub(crate) state: State,
    #[serde(serialize_with = "as_time")]
    pub(crate) created_at: i64,
    /// The image as written by the pod's author, if known.
    pub(crate) image: String,
    pub(crate) image_id: String,
    pub(crate) labels: BTreeMap<String, String>,
    /// The reason for an unknown state; empty otherwise.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(crate) message: String,
}

/// The state of a container.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, clap::ValueEnum)]
#[serde(rename_all = "camelCase")]
pub(crate) enum State {
    /// The program has not been started.
    Created,
    /// The program runs.
    Running,
    /// The program has ended.
    Exited,
    /// Unknown; `ps` has the reason.
    Unknown,
}

impl State {
    pub(crate) fn of(state: v1::ContainerState) -> State {
        match state {
            v1::ContainerState::ContainerCreated => State::Created,
            v1::ContainerState::ContainerRunning => State::Running,
            v1::ContainerState::ContainerExited => State::Exited,
            v1::ContainerState::ContainerUnknown => State::Unknown,
        }
    }

    pub(crate) fn name(self) -> &'static str {
        match self {
            State::Created => "created",
            State::Running => "running",
            State::Exited => "exited",
            State::Unknown => "UNKNOWN",
        }
    }
}

impl Pod {
    /// The runtime and the handler, as "vm/podvisor"; the default handler has no name.
    pub(crate) fn runtime_name(&self) -> String {
        let runtime = match self.runtime {
            Runtime::Vm => "vm",
            Runtime::Upstream => "upstream",
            Runtime::Unknown => "?",
        };
        if self.handler.is_empty() { runtime.to_owned() } else { format!("{runtime}/{}", self.handler) }
    }
}

impl Subject for &Pod {
    fn kind(&self) -> &'static str {
        "pod"
    }

    fn id(&self) -> &str {
        &self.id
    }

    fn path(&self) -> String {
        format!("{}/{}", self.namespace, self.name)
    }
}

fn as_time<S: Serializer>(at_ns: &i64, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&units::time(*at_ns))
}

/// Asks for all pods with their containers, and for the daemon's own status.
///
/// # Errors
/// The daemon does not answer one of the calls.
pub(crate) async fn ask(daemon: &Daemon) -> Result<(Vec<Pod>, NodeStatus), DaemonError> {
    // The pods in VMs are asked for before and after: otherwise a pod created or removed meanwhile would look
    // like the upstream's.
    let before = status(daemon).await?;
    // Containers first: a container's pod is listed as long as the container is.
    let containers = daemon.containers().await?;
    let pods = daemon.pods().await?;
    if before.in_vms.is_none() {
        return Ok((listing(pods, containers, &before), before));
    }
    let mut status = status(daemon).await?;
    if let (Some(ids), Some(earlier)) = (&mut status.in_vms, before.in_vms) {
        ids.extend(earlier);
    }
    Ok((listing(pods, containers, &status), status))
}

/// The daemon's status. If only this call hangs (because the network's files are on a hanging disk), the
/// lists are shown without it.
async fn status(daemon: &Daemon) -> Result<NodeStatus, DaemonError> {
    match daemon.status().await {
        Err(late @ DaemonError::Late { .. }) => {
            let condition = v1::RuntimeCondition {
                r#type: "Status".into(),
                status: false,
                reason: "NoAnswer".into(),
                message: late.to_string(),
            };
            Ok(NodeStatus { wrong: vec![condition], ..NodeStatus::default() })
        }
        answer => answer,
    }
}

/// Returns the pods by namespace and name, each with its containers. If a container's pod was removed between
/// both calls and is in no list, it gets a pod with only its names.
pub(crate) fn listing(
    pods: Vec<v1::PodSandbox>,
    containers: Vec<v1::Container>,
    status: &NodeStatus,
) -> Vec<Pod> {
    let mut by_id: BTreeMap<String, Pod> =
        pods.into_iter().map(|pod| (pod.id.clone(), pod_of(pod, status))).collect();
    for container in containers {
        let id = container.pod_sandbox_id.clone();
        let pod = by_id.entry(id).or_insert_with_key(|id| pod_of_labels(id, &container.labels, status));
        pod.containers.push(container_of(container));
    }
    let mut pods: Vec<Pod> = by_id.into_values().collect();
    for pod in &mut pods {
        pod.containers.sort_by(|a, b| (a.created_at, &a.id).cmp(&(b.created_at, &b.id)));
    }
    pods.sort_by(|a, b| {
        (&a.namespace, &a.name, a.created_at, &a.id).cmp(&(&b.namespace, &b.name, b.created_at, &b.id))
    });
    pods
}

fn runtime_of(id: &str, status: &NodeStatus) -> Runtime {
    match &status.in_vms {
        None => Runtime::Unknown,
        Some(ours) if ours.contains(id) => Runtime::Vm,
        Some(_) => Runtime::Upstream,
    }
}

fn pod_of(pod: v1::PodSandbox, status: &NodeStatus) -> Pod {
    let ready = pod.state() == v1::PodSandboxState::SandboxReady;
    let v1::PodSandboxMetadata { name, uid, namespace, attempt } = pod.metadata.unwrap_or_default();
    Pod {
        runtime: runtime_of(&pod.id, status),
        waits_for_room: status.waiting_for_room.contains(&pod.id),
        id: pod.id,
        namespace,
        name,
        uid,
        attempt,
        ready,
        created_at: pod.created_at,
        handler: pod.runtime_handler,
        labels: pod.labels,
        containers: Vec::new(),
    }
}

fn pod_of_labels(id: &str, labels: &BTreeMap<String, String>, status: &NodeStatus) -> Pod {
    let label = |name| labels.get(name).cloned().unwrap_or_default();
    Pod {
        id: id.to_owned(),
        namespace: label(POD_NAMESPACE),
        name: label(POD_NAME),
        uid: String::new(),
        attempt: 0,
        ready: false,
        waits_for_room: status.waiting_for_room.contains(id),
        created_at: 0,
        runtime: runtime_of(id, status),
        handler: String::new(),
        labels: BTreeMap::new(),
        containers: Vec::new(),
    }
}

fn container_of(container: v1::Container) -> Container {
    let state = State::of(container.state());
    let v1::ContainerMetadata { name, attempt } = container.metadata.unwrap_or_default();
    let v1::ImageSpec { image, user_specified_image, .. } = container.image.unwrap_or_default();
    Container {
        id: container.id,
        name,
        attempt,
        state,
        created_at: container.created_at,
        image: if user_specified_image.is_empty() { image } else { user_specified_image },
        image_id: container.image_id,
        labels: container.labels,
        message: String::new(),
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) fn pod(id: &str, namespace: &str, name: &str, ready: bool) -> v1::PodSandbox {
        let metadata = v1::PodSandboxMetadata {
            name: name.into(),
            namespace: namespace.into(),
            uid: format!("uid-{name}"),
            attempt: 0,
        };
        let state =
            if ready { v1::PodSandboxState::SandboxReady } else { v1::PodSandboxState::SandboxNotready };
        v1::PodSandbox {
            id: id.into(),
            metadata: Some(metadata),
            state: state.into(),
            created_at: 1,
            ..Default::default()
        }
    }

    pub(crate) fn container(id: &str, pod: &str, name: &str, state: v1::ContainerState) -> v1::Container {
        v1::Container {
            id: id.into(),
            pod_sandbox_id: pod.into(),
            metadata: Some(v1::ContainerMetadata { name: name.into(), attempt: 0 }),
            state: state.into(),
            created_at: 2,
            ..Default::default()
        }
    }

    #[test]
    fn pods_have_their_containers_and_the_runtime_that_has_them() {
        let status = NodeStatus { in_vms: Some(["p1".to_owned()].into()), ..Default::default() };
        let mut node = pod("p2", "kube-system", "proxy", true);
        node.runtime_handler = "runc".into();
        let containers = vec![
            container("c2", "p2", "proxy", v1::ContainerState::ContainerRunning),
            container("c1", "p1", "app", v1::ContainerState::ContainerExited),
        ];
        let listed = listing(vec![node, pod("p1", "default", "web", true)], containers.clone(), &status);
        let shown: Vec<_> = listed.iter().map(|pod| (pod.name.as_str(), pod.runtime_name())).collect();
        assert_eq!(shown, [("web", "vm".to_owned()), ("proxy", "upstream/runc".to_owned())]);
        assert_eq!((listed[0].containers[0].name.as_str(), listed[0].containers.len()), ("app", 1));
        let listed = listing(Vec::new(), containers, &NodeStatus::default());
        assert!(listed.iter().all(|pod| pod.runtime_name() == "?" && pod.containers.len() == 1));
    }

    #[test]
    fn a_container_whose_pod_is_gone_is_listed_by_its_labels() {
        let mut left = container("c1", "p1", "app", v1::ContainerState::ContainerUnknown);
        left.labels =
            [(POD_NAME.to_owned(), "web".to_owned()), (POD_NAMESPACE.to_owned(), "shop".to_owned())].into();
        let listed = listing(Vec::new(), vec![left], &NodeStatus::default());
        assert_eq!(
            (listed[0].namespace.as_str(), listed[0].name.as_str(), listed[0].ready),
            ("shop", "web", false)
        );
    }

    #[test]
    fn the_image_is_the_name_that_people_gave() {
        let mut one = container("c1", "p1", "app", v1::ContainerState::ContainerRunning);
        let image = |image: &str, user: &str| {
            Some(v1::ImageSpec {
                image: image.into(),
                user_specified_image: user.into(),
                ..Default::default()
            })
        };
        one.image = image("sha256:aa", "busybox:1");
        assert_eq!(container_of(one.clone()).image, "busybox:1");
        one.image = image("sha256:aa", "");
        assert_eq!(container_of(one).image, "sha256:aa");
    }
}
