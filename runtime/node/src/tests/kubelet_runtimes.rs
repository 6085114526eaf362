//! The runtime of a running kubelet.

use std::fs;
use std::path::Path;

use super::node::Node;
use crate::kubelet_runtime::{KubeletRuntime, kubelet_runtime};
use crate::leave::leave;
use crate::remove::RemoveError;

const SOCKET: &str = "/run/podvisor/podvisor.sock";

fn runtime(node: &Node) -> KubeletRuntime {
    kubelet_runtime(&node.root, &node.systemd, Path::new(SOCKET)).unwrap()
}

#[test]
fn a_kubelet_uses_the_daemon_if_its_arguments_or_its_configuration_name_the_socket() {
    let node = Node::new();
    assert_eq!(runtime(&node), KubeletRuntime::Another);
    for (arguments, expected) in [
        ("--container-runtime-endpoint=unix:///run/podvisor/podvisor.sock", KubeletRuntime::Podvisor),
        ("--container-runtime-endpoint\0/var/run/podvisor/podvisor.sock", KubeletRuntime::Podvisor),
        ("--container-runtime-endpoint=unix:///run/crio/crio.sock", KubeletRuntime::Another),
        ("--v=2", KubeletRuntime::Another),
        ("--config=/var/lib/kubelet/config.yaml", KubeletRuntime::Another),
    ] {
        fs::write(node.path("proc/40/cmdline"), format!("kubelet\0{arguments}\0")).unwrap();
        assert_eq!(runtime(&node), expected, "{arguments}");
    }
    let config = format!("containerRuntimeEndpoint: unix://{SOCKET}\n");
    fs::write(node.path("var/lib/kubelet/config.yaml"), config).unwrap();
    assert_eq!(runtime(&node), KubeletRuntime::Podvisor);
    fs::remove_dir_all(node.path("proc/40")).unwrap();
    assert_eq!(runtime(&node), KubeletRuntime::Unknown);
}

#[test]
fn an_installation_returns_the_runtime_that_the_kubelet_has_then() {
    let mut node = Node::new();
    node.spec.switch_kubelet = false;
    assert_eq!(node.install_beside_kubelet(), KubeletRuntime::Another);
    node.spec.switch_kubelet = true;
    assert_eq!(node.install_beside_kubelet(), KubeletRuntime::Podvisor);
    // The switch holds without the wish, also while the kubelet restarts, until somebody undoes it.
    node.spec.switch_kubelet = false;
    let arguments = node.path("proc/40/cmdline");
    fs::write(&arguments, format!("kubelet\0--container-runtime-endpoint=unix://{SOCKET}\0")).unwrap();
    assert_eq!(node.install_beside_kubelet(), KubeletRuntime::Podvisor);
    fs::remove_dir_all(node.path("proc/40")).unwrap();
    assert_eq!(node.install_beside_kubelet(), KubeletRuntime::Podvisor);
    node.process(
        41,
        "kubelet",
        "kubelet\0--container-runtime-endpoint=unix:///run/containerd/containerd.sock\0",
    );
    assert_eq!(node.install_beside_kubelet(), KubeletRuntime::Another);
    fs::remove_dir_all(node.path("proc/41")).unwrap();
    leave(&node.root, &node.systemd, false, &mut |_| {}).unwrap();
    assert_eq!(node.install_beside_kubelet(), KubeletRuntime::Unknown);
}

#[test]
fn the_runtime_of_k3s_is_that_of_the_last_of_its_files() {
    let node = Node::new();
    fs::remove_dir_all(node.path("proc/40")).unwrap();
    let overrides = node.path("etc/rancher/k3s/config.yaml.d");
    fs::create_dir_all(&overrides).unwrap();
    fs::write(
        overrides.join("90-podvisor.yaml"),
        format!("kubelet-arg+: container-runtime-endpoint=unix://{SOCKET}\n"),
    )
    .unwrap();
    assert_eq!(runtime(&node), KubeletRuntime::Unknown, "k3s does not run");
    node.process(50, "k3s-server", "/usr/local/bin/k3s server\0");
    assert_eq!(runtime(&node), KubeletRuntime::Podvisor);
    fs::write(overrides.join("91-more.yaml"), "token: x\n").unwrap();
    fs::write(overrides.join("92-note.txt"), "container-runtime-endpoint: unix:///x\n").unwrap();
    assert_eq!(runtime(&node), KubeletRuntime::Podvisor);
    fs::remove_file(overrides.join("90-podvisor.yaml")).unwrap();
    assert_eq!(runtime(&node), KubeletRuntime::Another);
    let own = node.path("etc/rancher/k3s/config.yaml");
    fs::write(own, format!("container-runtime-endpoint: {SOCKET}\n")).unwrap();
    assert_eq!(runtime(&node), KubeletRuntime::Podvisor);
}

/// A node of k3s, whose process hides its arguments. Its unit has this command.
fn k3s(command: &str) -> Node {
    let node = Node::new();
    fs::remove_dir_all(node.path("proc/40")).unwrap();
    node.process(50, "k3s-server", "/usr/local/bin/k3s server\0");
    node.systemd.active.borrow_mut().insert("k3s.service".into());
    *node.systemd.command.borrow_mut() = command.into();
    node
}

#[test]
fn an_argument_of_k3s_wins_over_its_files() {
    for (argument, expected) in [
        ("'--kubelet-arg=container-runtime-endpoint=unix:///run/podvisor/podvisor.sock'", true),
        ("--kubelet-arg container-runtime-endpoint=unix:///run/podvisor/podvisor.sock", true),
        ("--container-runtime-endpoint=/run/podvisor/podvisor.sock", true),
        ("--kubelet-arg=max-pods=200", false),
    ] {
        let node = k3s(&format!("/usr/local/bin/k3s server {argument}"));
        assert_eq!(runtime(&node) == KubeletRuntime::Podvisor, expected, "{argument}");
    }
    let node =
        k3s("/usr/local/bin/k3s server --kubelet-arg=container-runtime-endpoint=unix:///run/crio/crio.sock");
    fs::create_dir_all(node.path("etc/rancher/k3s")).unwrap();
    let text = format!("kubelet-arg: container-runtime-endpoint=unix://{SOCKET}\n");
    fs::write(node.path("etc/rancher/k3s/config.yaml"), text).unwrap();
    assert_eq!(runtime(&node), KubeletRuntime::Another);
}

/// A node of MicroK8s with these arguments of the kubelet.
fn microk8s(arguments: &str) -> Node {
    let node = Node::new();
    fs::remove_dir_all(node.path("proc/40")).unwrap();
    node.systemd.active.borrow_mut().remove("kubelet.service");
    node.systemd.loaded.borrow_mut().remove("kubelet.service");
    fs::create_dir_all(node.path("var/snap/microk8s/7/args")).unwrap();
    fs::write(node.path("var/snap/microk8s/7/args/kubelet"), arguments).unwrap();
    std::os::unix::fs::symlink("7", node.path("var/snap/microk8s/current")).unwrap();
    node.process(51, "kubelite", "/snap/microk8s/7/kubelite\0--start-control-plane=true\0");
    node
}

const MICROK8S: &str = "--root-dir=${SNAP_COMMON}/var/lib/kubelet\n\
    --container-runtime-endpoint=${SNAP_COMMON}/run/containerd.sock\n";

#[test]
fn the_runtime_of_microk8s_is_in_its_file_of_arguments() {
    let node = microk8s(MICROK8S);
    assert_eq!(runtime(&node), KubeletRuntime::Another);
    let file = node.path("var/snap/microk8s/7/args/kubelet");
    fs::write(&file, format!("--container-runtime-endpoint=unix://{SOCKET}\n")).unwrap();
    assert_eq!(runtime(&node), KubeletRuntime::Podvisor);
    // The process names the file of its own revision.
    fs::remove_file(node.path("var/snap/microk8s/current")).unwrap();
    let arguments = "kubelite\0--kubelet-args-file=/var/snap/microk8s/7/args/kubelet\0";
    fs::write(node.path("proc/51/cmdline"), arguments).unwrap();
    assert_eq!(runtime(&node), KubeletRuntime::Podvisor);
}

#[test]
fn a_new_configuration_on_microk8s_has_its_containerd_behind_podvisor() {
    let mut node = microk8s(MICROK8S);
    node.spec.switch_kubelet = false;
    assert_eq!(node.install_beside_kubelet(), KubeletRuntime::Another);
    let settings = node.text("etc/podvisor/config.toml");
    assert!(settings.contains("socket = \"/var/snap/microk8s/common/run/containerd.sock\"\n"), "{settings}");
}

#[test]
fn a_removal_is_refused_while_a_kubelet_inside_a_distribution_uses_the_daemon() {
    let argument = format!("container-runtime-endpoint=unix://{SOCKET}");
    let by_argument = format!("/usr/local/bin/k3s server --kubelet-arg={argument}");
    for mut node in [k3s(&by_argument), microk8s(&format!("--{argument}\n"))] {
        node.spec.switch_kubelet = false;
        node.spec.upstream = Some("/run/theirs.sock".into());
        assert_eq!(node.install_beside_kubelet(), KubeletRuntime::Podvisor);
        let refused = node.remove(true, true).unwrap_err();
        assert!(matches!(refused, RemoveError::InUse(_)), "{refused}");
        assert!(node.is_running("podvisor.service"));
    }
}

#[test]
fn a_containers_process_is_not_the_nodes_kubelet() {
    let node = Node::new();
    fs::write(node.path("proc/40/cmdline"), format!("kubelet\0--container-runtime-endpoint={SOCKET}\0"))
        .unwrap();
    let other = "kubelet\0--container-runtime-endpoint=unix:///run/crio/crio.sock\0";
    node.process(30, "kubelet", other);
    fs::write(node.path("proc/30/status"), "Name:\tkubelet\nNSpid:\t30\t2\n").unwrap();
    node.process(31, "kubelet", other);
    let cgroup = "0::/kubepods.slice/kubepods-pod1.slice/cri-containerd-2.scope\n";
    fs::write(node.path("proc/31/cgroup"), cgroup).unwrap();
    assert_eq!(runtime(&node), KubeletRuntime::Podvisor);
    fs::write(node.path("proc/40/status"), "Name:\tkubelet\nNSpid:\t40\n").unwrap();
    fs::write(node.path("proc/40/cgroup"), "0::/system.slice/kubelet.service\n").unwrap();
    assert_eq!(runtime(&node), KubeletRuntime::Podvisor);
    fs::remove_dir_all(node.path("proc/40")).unwrap();
    assert_eq!(runtime(&node), KubeletRuntime::Unknown);
}
