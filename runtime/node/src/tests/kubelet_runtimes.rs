//! The runtime of a running kubelet.

use std::fs;
use std::path::Path;

use super::node::Node;
use crate::kubelet_runtime::{KubeletRuntime, kubelet_runtime};
use crate::leave::leave;

const SOCKET: &str = "/run/podvisor/podvisor.sock";

fn runtime(node: &Node) -> KubeletRuntime {
    kubelet_runtime(&node.root, Path::new(SOCKET)).unwrap()
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
