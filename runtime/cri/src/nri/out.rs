//! Pods and containers in the plugins' view. Processes are in the VM, so a container has no process id, and
//! no namespaces of the node.

use std::collections::HashMap;

use proto_nri::nri::{
    Container, ContainerState, Image, LinuxContainer, LinuxDevice, LinuxNamespace, LinuxPodSandbox, Mount,
    OptionalFileMode, OptionalInt, OptionalUInt32, POSIXRlimit, PodSandbox, User,
};
use runtime_pod::{ContainerView, PodView};
use runtime_spec::{ContainerSpec, Device, MountPropagation};

use super::resources::resources_out;

/// A pod. Its process is its VMM, if it has one.
pub(super) fn pod_out(view: &PodView) -> PodSandbox {
    let network = view.netns.iter().map(|path| LinuxNamespace {
        type_: "network".into(),
        path: path.to_string_lossy().into_owned(),
        ..Default::default()
    });
    let linux = LinuxPodSandbox {
        pod_overhead: view.overhead.as_ref().map(resources_out).into(),
        pod_resources: view.resources.as_ref().map(resources_out).into(),
        cgroup_parent: view.spec.cgroup_parent.clone(),
        namespaces: network.collect(),
        ..Default::default()
    };
    PodSandbox {
        id: view.id.clone(),
        name: view.spec.name.clone(),
        uid: view.spec.uid.clone(),
        namespace: view.spec.namespace.clone(),
        labels: plain(&view.spec.labels),
        annotations: plain(&view.spec.annotations),
        runtime_handler: view.spec.runtime_handler.clone(),
        linux: Some(linux).into(),
        pid: view.vmm_pid.unwrap_or_default(),
        ips: view.ips.iter().map(ToString::to_string).collect(),
        ..Default::default()
    }
}

/// A container. It has the annotations of its request and those of plugins.
pub(super) fn container_out(view: &ContainerView) -> Container {
    let spec = &view.spec;
    let mut annotations = plain(&spec.annotations);
    annotations.extend(spec.plugin_annotations.clone());
    let score = OptionalInt { value: spec.resources.oom_score_adj, ..Default::default() };
    let linux = LinuxContainer {
        devices: spec.devices.iter().map(device).collect(),
        resources: Some(resources_out(&view.resources)).into(),
        oom_score_adj: Some(score).into(),
        ..Default::default()
    };
    let process = &view.process;
    let limits = process.rlimits().iter().flatten().map(|limit| POSIXRlimit {
        type_: limit.typ().to_string(),
        hard: limit.hard(),
        soft: limit.soft(),
        ..Default::default()
    });
    let user = User {
        uid: view.user.uid,
        gid: view.user.gid,
        additional_gids: view.user.groups.clone(),
        ..Default::default()
    };
    Container {
        id: view.id.clone(),
        pod_sandbox_id: view.pod_id.clone(),
        name: spec.name.clone(),
        state: state(view.state).into(),
        labels: plain(&spec.labels),
        annotations,
        args: process.args().clone().unwrap_or_default(),
        env: process.env().clone().unwrap_or_default(),
        mounts: mounts(spec),
        linux: Some(linux).into(),
        rlimits: limits.collect(),
        created_at: view.created_at_ns,
        started_at: view.started_at_ns,
        finished_at: view.finished_at_ns,
        exit_code: view.exit_code,
        status_reason: view.reason.map(|reason| reason.name().to_owned()).unwrap_or_default(),
        status_message: view.message.clone(),
        user: Some(user).into(),
        image: Some(image(view)).into(),
        ..Default::default()
    }
}

fn state(state: runtime_pod::ContainerState) -> ContainerState {
    match state {
        runtime_pod::ContainerState::Created => ContainerState::CONTAINER_CREATED,
        runtime_pod::ContainerState::Running => ContainerState::CONTAINER_RUNNING,
        runtime_pod::ContainerState::Exited => ContainerState::CONTAINER_STOPPED,
        runtime_pod::ContainerState::Unknown => ContainerState::CONTAINER_UNKNOWN,
    }
}

fn image(view: &ContainerView) -> Image {
    let named = match view.spec.user_specified_image.as_str() {
        "" => &view.spec.image,
        named => named,
    };
    let digest = view.image_ref.split_once('@').map(|(_, digest)| digest.to_owned());
    Image {
        name: named.to_owned(),
        digest: digest.unwrap_or_default(),
        config_digest: view.image_id.clone(),
        ..Default::default()
    }
}

/// The container's mounts from the node, images, and file systems in memory. Every container's default mounts
/// are not included.
fn mounts(spec: &ContainerSpec) -> Vec<Mount> {
    let asked = spec.mounts.iter().map(|mount| {
        let access = if mount.readonly { "ro" } else { "rw" };
        let propagation = match mount.propagation {
            MountPropagation::Private => "rprivate",
            MountPropagation::HostToContainer => "rslave",
            MountPropagation::Bidirectional => "rshared",
        };
        let source = if mount.image.is_empty() { &mount.host_path } else { &mount.image };
        Mount {
            destination: mount.container_path.clone(),
            type_: "bind".into(),
            source: source.clone(),
            options: ["rbind", propagation, access].map(str::to_owned).to_vec(),
            ..Default::default()
        }
    });
    let in_memory = spec.tmpfs.iter().map(|tmpfs| Mount {
        destination: tmpfs.container_path.clone(),
        type_: "tmpfs".into(),
        source: "tmpfs".into(),
        options: tmpfs.options.clone(),
        ..Default::default()
    });
    asked.chain(in_memory).collect()
}

/// Numbers are those of the guest's own devices. A disk gets its number in the guest.
fn device(device: &Device) -> LinuxDevice {
    let own = device.guest_device();
    let number = |value: u32| OptionalUInt32 { value, ..Default::default() };
    LinuxDevice {
        path: device.container_path.clone(),
        type_: if own.is_some() { "c" } else { "b" }.to_owned(),
        major: own.map_or(0, |own| own.major),
        minor: own.map_or(0, |own| own.minor),
        file_mode: device.mode.map(|value| OptionalFileMode { value, ..Default::default() }).into(),
        uid: device.uid.map(number).into(),
        gid: device.gid.map(number).into(),
        ..Default::default()
    }
}

fn plain(map: &std::collections::BTreeMap<String, String>) -> HashMap<String, String> {
    map.clone().into_iter().collect()
}

#[cfg(test)]
mod tests {
    use runtime_spec::Tmpfs;

    use super::*;

    #[test]
    fn a_container_is_shown_with_what_it_asks_for_and_what_plugins_added() {
        let spec = ContainerSpec {
            name: "app".into(),
            image: "sha256:aa".into(),
            user_specified_image: "busybox:1".into(),
            annotations: [("a".to_owned(), "1".to_owned()), ("b".to_owned(), "2".to_owned())].into(),
            plugin_annotations: [("b".to_owned(), "3".to_owned())].into(),
            mounts: vec![runtime_spec::Mount {
                host_path: "/h".into(),
                container_path: "/c".into(),
                readonly: true,
                ..Default::default()
            }],
            tmpfs: vec![Tmpfs { container_path: "/t".into(), options: vec!["size=1m".into()] }],
            devices: vec![Device {
                host_path: "/dev/fuse".into(),
                container_path: "/dev/fuse".into(),
                ..Default::default()
            }],
            ..Default::default()
        };
        let view = ContainerView {
            id: "c".into(),
            spec,
            image_ref: "r/busybox@sha256:bb".into(),
            state: runtime_pod::ContainerState::Running,
            ..Default::default()
        };
        let out = container_out(&view);
        assert_eq!((out.annotations["a"].as_str(), out.annotations["b"].as_str()), ("1", "3"));
        assert_eq!((out.image.name.as_str(), out.image.digest.as_str()), ("busybox:1", "sha256:bb"));
        assert_eq!(out.mounts[0].options, ["rbind", "rprivate", "ro"]);
        assert_eq!((out.mounts[1].type_.as_str(), out.mounts[1].destination.as_str()), ("tmpfs", "/t"));
        assert_eq!((out.linux.devices[0].major, out.linux.devices[0].minor), (10, 229));
        assert_eq!(out.state.unwrap(), ContainerState::CONTAINER_RUNNING);
    }
}
