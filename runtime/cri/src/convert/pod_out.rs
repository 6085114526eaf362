//! A pod's view to `PodSandbox` and `PodSandboxStatus`.

use proto_cri::v1;
use runtime_pod::{PodState, PodView};
use runtime_spec::{NamespaceMode, Namespaces, PodSpec};

use super::security::id_mappings_out;

/// For lists.
pub(crate) fn pod_item(pod: &PodView) -> v1::PodSandbox {
    v1::PodSandbox {
        id: pod.id.clone(),
        metadata: Some(metadata(&pod.spec)),
        state: pod_state(pod.state).into(),
        created_at: pod.created_at_ns,
        labels: pod.spec.labels.clone(),
        annotations: pod.spec.annotations.clone(),
        runtime_handler: pod.spec.runtime_handler.clone(),
    }
}

/// The whole status. The kubelet recreates a pod for ever if its status lacks the network mode, or if a ready
/// pod has no address (kubelet `PodSandboxChanged`).
pub(crate) fn pod_status(pod: &PodView) -> v1::PodSandboxStatus {
    let mut ips = pod.ips.iter().map(ToString::to_string);
    let ip = ips.next().unwrap_or_default();
    v1::PodSandboxStatus {
        id: pod.id.clone(),
        metadata: Some(metadata(&pod.spec)),
        state: pod_state(pod.state).into(),
        created_at: pod.created_at_ns,
        network: Some(v1::PodSandboxNetworkStatus {
            ip,
            additional_ips: ips.map(|ip| v1::PodIp { ip }).collect(),
        }),
        linux: Some(v1::LinuxPodSandboxStatus {
            namespaces: Some(v1::Namespace { options: Some(namespaces(&pod.spec.namespaces)) }),
        }),
        labels: pod.spec.labels.clone(),
        annotations: pod.spec.annotations.clone(),
        runtime_handler: pod.spec.runtime_handler.clone(),
    }
}

fn metadata(spec: &PodSpec) -> v1::PodSandboxMetadata {
    v1::PodSandboxMetadata {
        name: spec.name.clone(),
        uid: spec.uid.clone(),
        namespace: spec.namespace.clone(),
        attempt: spec.attempt,
    }
}

pub(super) fn pod_state(state: PodState) -> v1::PodSandboxState {
    match state {
        PodState::Ready => v1::PodSandboxState::SandboxReady,
        PodState::NotReady => v1::PodSandboxState::SandboxNotready,
    }
}

fn namespaces(namespaces: &Namespaces) -> v1::NamespaceOption {
    let mut target_id = String::new();
    let mut mode = |mode: &NamespaceMode| {
        i32::from(match mode {
            NamespaceMode::Pod => v1::NamespaceMode::Pod,
            NamespaceMode::Container => v1::NamespaceMode::Container,
            NamespaceMode::Node => v1::NamespaceMode::Node,
            NamespaceMode::Target(id) => {
                target_id.clone_from(id);
                v1::NamespaceMode::Target
            }
        })
    };
    let (network, pid, ipc) = (mode(&namespaces.network), mode(&namespaces.pid), mode(&namespaces.ipc));
    let userns_options = (namespaces.user == NamespaceMode::Pod).then(|| v1::UserNamespace {
        mode: v1::NamespaceMode::Pod.into(),
        uids: id_mappings_out(&namespaces.uids),
        gids: id_mappings_out(&namespaces.gids),
    });
    v1::NamespaceOption { network, pid, ipc, target_id, userns_options }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn view() -> PodView {
        PodView {
            id: "p1".into(),
            spec: PodSpec::default(),
            state: PodState::Ready,
            created_at_ns: 7,
            ips: vec!["10.0.0.2".parse().unwrap(), "fd00::2".parse().unwrap()],
            netns: None,
            ledger: Default::default(),
            resources: None,
            overhead: None,
            vmm_pid: None,
            versions: None,
            message: None,
            unclean: None,
            settings_passed_by: Vec::new(),
            full_disks: 0,
            lost: false,
        }
    }

    #[test]
    fn the_primary_address_comes_first_and_the_others_beside_it() {
        let network = pod_status(&view()).network.unwrap();
        assert_eq!(network.ip, "10.0.0.2");
        assert_eq!(network.additional_ips, vec![v1::PodIp { ip: "fd00::2".into() }]);
    }

    #[test]
    fn the_network_mode_is_returned() {
        let options = pod_status(&view()).linux.unwrap().namespaces.unwrap().options.unwrap();
        assert_eq!(options.network(), v1::NamespaceMode::Pod);
    }

    #[test]
    fn a_pod_without_an_address_has_an_empty_network_status() {
        let pod = PodView { ips: Vec::new(), ..view() };
        assert_eq!(pod_status(&pod).network, Some(v1::PodSandboxNetworkStatus::default()));
    }
}
