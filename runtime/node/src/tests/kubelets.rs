//! The kubelet's way to Podvisor and back, with its faults.

use std::fs;

use super::node::Node;
use crate::install::InstallError;
use crate::kubelet::KubeletError;
use crate::leave::{LeaveError, leave};

const DROP_IN: &str = "etc/systemd/system/kubelet.service.d/90-podvisor.conf";

#[test]
fn a_kubelet_is_switched_only_where_that_is_asked() {
    let mut node = Node::new();
    node.spec.switch_kubelet = false;
    node.install().unwrap();
    assert!(!node.path(DROP_IN).exists());
    assert!(!node.systemd.started.borrow().contains(&"kubelet.service".to_owned()));
    node.spec.switch_kubelet = true;
    node.install().unwrap();
    let text = node.text(DROP_IN);
    let command = "ExecStart=\nExecStart=/usr/bin/kubelet $ARGS --container-runtime-endpoint=unix:///run/podvisor/podvisor.sock\n";
    assert!(text.ends_with(command), "{text}");
    // An installation without the wish leaves a switched kubelet as it is.
    node.spec.switch_kubelet = false;
    node.install().unwrap();
    assert_eq!(node.text(DROP_IN), text);
}

#[test]
fn a_kubelet_that_does_not_keep_running_has_its_old_runtime_again() {
    let node = Node::new();
    node.systemd.kubelet_falls.set(true);
    let said = node.install().unwrap_err().to_string();
    assert!(said.contains("ActiveState=activating, NRestarts=1"), "{said}");
    assert!(!node.path(DROP_IN).exists() && node.is_running("kubelet.service"));
    node.systemd.kubelet_falls.set(false);
    node.install().unwrap();
    assert!(node.path(DROP_IN).exists());
}

#[test]
fn a_switch_that_another_file_overrides_is_not_made() {
    let node = Node::new();
    let file = "/etc/systemd/system/kubelet.service.d/override.conf";
    *node.systemd.later.borrow_mut() =
        format!("# {file}\n[Service]\nExecStart=\nExecStart=/usr/bin/kubelet\n");
    let said = node.install().unwrap_err().to_string();
    assert!(said.contains(file), "{said}");
    assert!(!node.path(DROP_IN).exists());
    assert!(!node.systemd.started.borrow().contains(&"kubelet.service".to_owned()), "it is not restarted");
    node.systemd.later.borrow_mut().clear();
    node.install().unwrap();
    assert!(node.path(DROP_IN).exists());
}

#[test]
fn a_configuration_without_another_runtime_keeps_the_kubelet_from_being_switched() {
    let node = Node::new();
    fs::create_dir(node.path("etc/podvisor")).unwrap();
    fs::write(node.path("etc/podvisor/config.toml"), "").unwrap();
    assert!(matches!(node.install(), Err(InstallError::NoUpstream)));
    assert!(!node.path(DROP_IN).exists());
    assert_eq!(node.text("etc/podvisor/config.toml"), "");
}

#[test]
fn the_socket_is_that_of_the_configuration_unless_a_unit_could_not_hold_it() {
    for (socket, fits) in
        [("/run/x/a.sock", true), ("/run/a b", false), ("/run/%i", false), ("a.sock", false)]
    {
        let node = Node::new();
        fs::create_dir(node.path("etc/podvisor")).unwrap();
        let text = format!("[paths]\nsocket = \"{socket}\"\n[upstream]\nsocket = \"/c.sock\"\n");
        fs::write(node.path("etc/podvisor/config.toml"), text).unwrap();
        match node.install() {
            Ok(_) => assert!(fits && node.text(DROP_IN).contains("unix:///run/x/a.sock\n")),
            Err(InstallError::Kubelet(KubeletError::Socket(_))) => assert!(!fits, "{socket}"),
            Err(error) => panic!("{error}"),
        }
    }
}

#[test]
fn with_several_runtimes_and_no_kubelet_the_operator_is_asked() {
    let node = Node::new();
    fs::remove_dir_all(node.path("proc/40")).unwrap();
    fs::create_dir(node.path("run/crio")).unwrap();
    fs::write(node.path("run/crio/crio.sock"), "").unwrap();
    let said = node.install().unwrap_err().to_string();
    assert!(said.contains("/run/containerd/containerd.sock, /run/crio/crio.sock"), "{said}");
}

#[test]
fn a_node_without_a_known_kubelet_gets_everything_but_the_switch() {
    let node = Node::new();
    for units in [&node.systemd.loaded, &node.systemd.active] {
        units.borrow_mut().clear();
    }
    assert!(matches!(node.install(), Err(InstallError::Kubelet(KubeletError::Unknown))));
    assert!(node.is_running("podvisor.service"));
}

/// A node of k3s, with containerd installed beside it.
fn k3s() -> Node {
    let node = Node::new();
    fs::remove_dir_all(node.path("proc/40")).unwrap();
    for units in [&node.systemd.loaded, &node.systemd.active] {
        *units.borrow_mut() = ["k3s-agent.service".to_owned()].into();
    }
    node
}

#[test]
fn k3s_is_switched_by_a_file_of_its_configuration_and_back() {
    let node = k3s();
    let file = "etc/rancher/k3s/config.yaml.d/90-podvisor.yaml";
    node.install().unwrap();
    assert!(node.text(file).ends_with("container-runtime-endpoint: unix:///run/podvisor/podvisor.sock\n"));
    assert!(node.systemd.started.borrow().contains(&"k3s-agent.service".to_owned()));
    node.remove(false, false).unwrap();
    assert!(!node.path(file).exists() && node.is_running("k3s-agent.service"));
}

#[test]
fn the_kubelet_that_runs_is_switched_and_not_one_that_was_left_behind() {
    let node = Node::new();
    node.systemd.loaded.borrow_mut().insert("k3s.service".to_owned());
    // Its name begins like a kubelet's, and it was started before it.
    node.process(30, "kubelet-csr-app", "kubelet-csr-approver\0");
    node.install().unwrap();
    assert!(node.path(DROP_IN).exists() && !node.path("etc/rancher").exists());
}

#[test]
fn k3s_with_pods_in_its_own_containerd_is_not_switched() {
    let node = k3s();
    node.process(50, "containerd-shim", "containerd-shim\0-address\0/run/k3s/containerd/containerd.sock\0");
    assert!(matches!(node.install(), Err(InstallError::Kubelet(KubeletError::K3sPods))));
    assert!(!node.path("etc/rancher").exists());
    assert!(node.is_running("podvisor.service"), "all else is installed");
}

#[test]
fn k3s_does_not_leave_while_pods_run_in_the_runtime_beside_it() {
    let node = k3s();
    node.install().unwrap();
    let shim = "containerd-shim-runc-v2\0-address\0/run/containerd/containerd.sock\0";
    node.process(50, "containerd-shim", shim);
    for force in [false, true] {
        let refused = leave(&node.root, &node.systemd, force, &mut |_| {}).unwrap_err();
        assert!(matches!(&refused, LeaveError::K3sPods { unit } if unit == "k3s-agent.service"), "{refused}");
    }
    assert!(node.path("etc/rancher/k3s/config.yaml.d/90-podvisor.yaml").exists());
    fs::remove_dir_all(node.path("proc/50")).unwrap();
    leave(&node.root, &node.systemd, false, &mut |_| {}).unwrap();
    assert!(!node.path("etc/rancher/k3s/config.yaml.d/90-podvisor.yaml").exists());
}

#[test]
fn leaving_gives_the_kubelet_its_old_runtime_and_keeps_what_is_installed() {
    let node = Node::new();
    leave(&node.root, &node.systemd, false, &mut |_| {}).unwrap();
    node.install().unwrap();
    node.process(77, "podvisor-vmm", "");
    let refused = leave(&node.root, &node.systemd, false, &mut |_| {}).unwrap_err();
    assert!(matches!(&refused, LeaveError::Vms(vms) if *vms == [77]), "{refused}");
    assert!(node.path(DROP_IN).exists() && node.is_running("kubelet.service"));
    leave(&node.root, &node.systemd, true, &mut |_| {}).unwrap();
    assert!(!node.path(DROP_IN).exists() && !node.path("proc/77").exists());
    assert!(node.is_running("kubelet.service") && node.is_running("podvisor.service"));
    // The node may be switched again.
    node.install().unwrap();
    assert!(node.path(DROP_IN).exists());
}
