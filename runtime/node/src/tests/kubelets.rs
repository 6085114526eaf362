//! The kubelet's way to Podvisor and back, with its faults.

use std::fs;

use super::distributions::{K3S_FILE, k3s};
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
fn a_daemonset_does_not_restart_a_kubelet_again_and_again_for_a_switch_that_fails() {
    let mut node = Node::new();
    node.spec.again = false;
    node.systemd.kubelet_falls.set(true);
    let restarts = |node: &Node| {
        let said = node.install().unwrap_err().to_string();
        let started = node.systemd.started.take();
        (started.iter().filter(|unit| *unit == "kubelet.service").count(), said.contains("for it again"))
    };
    assert_eq!(restarts(&node), (2, false), "there and back");
    assert_eq!(restarts(&node), (0, true));
    // It is tried again by hand, with another command of the kubelet, with another release, and after leaving.
    node.spec.again = true;
    assert_eq!(restarts(&node), (2, false));
    node.spec.again = false;
    *node.systemd.kubelet_command.borrow_mut() = "/usr/bin/kubelet $ARGS $MORE".into();
    assert_eq!((restarts(&node), restarts(&node)), ((2, false), (0, true)));
    node.payload("second");
    assert_eq!((restarts(&node), restarts(&node)), ((2, false), (0, true)));
    leave(&node.root, &node.systemd, false, &mut |_| {}).unwrap();
    node.systemd.kubelet_falls.set(false);
    node.install().unwrap();
    assert!(node.path(DROP_IN).exists());
}

#[test]
fn a_node_that_would_not_be_ready_with_podvisor_keeps_its_kubelet_as_it_is() {
    let node = Node::new();
    *node.systemd.not_ready.borrow_mut() = Some("podvisor: NetworkReady: no network".into());
    let said = node.install().unwrap_err().to_string();
    assert!(said.contains("(podvisor: NetworkReady: no network)"), "{said}");
    assert!(!node.path(DROP_IN).exists() && node.is_running("podvisor.service"));
    assert!(!node.systemd.started.borrow().contains(&"kubelet.service".to_owned()), "it is not restarted");
    *node.systemd.not_ready.borrow_mut() = None;
    node.install().unwrap();
    // A switch in force is renewed all the same: the kubelet has Podvisor already.
    *node.systemd.not_ready.borrow_mut() = Some("no network any more".into());
    *node.systemd.kubelet_command.borrow_mut() = "/usr/bin/kubelet $ARGS $MORE".into();
    node.install().unwrap();
    assert!(node.text(DROP_IN).contains("$MORE"));
}

#[test]
fn a_switch_in_force_outlives_a_failure_to_renew_it() {
    let node = Node::new();
    node.install().unwrap();
    let text = node.text(DROP_IN);
    // As after an upgrade of the kubelet's package.
    *node.systemd.kubelet_command.borrow_mut() = "/usr/bin/kubelet $ARGS $MORE".into();
    node.systemd.kubelet_falls.set(true);
    let said = node.install().unwrap_err().to_string();
    assert!(said.contains("did not keep running after its switch was renewed"), "{said}");
    assert!(node.text(DROP_IN) == text && node.is_running("kubelet.service"));
    node.systemd.kubelet_falls.set(false);
    node.install().unwrap();
    assert!(node.text(DROP_IN).contains("$ARGS $MORE --container"), "{}", node.text(DROP_IN));
    leave(&node.root, &node.systemd, false, &mut |_| {}).unwrap();
    assert!(!node.path(DROP_IN).exists());

    // As a switch of an earlier release, which a later file of the operator's does not touch.
    let node = k3s();
    node.install().unwrap();
    let earlier = "container-runtime-endpoint: unix:///run/podvisor/podvisor.sock\n";
    fs::write(node.path(K3S_FILE), earlier).unwrap();
    let other = node.path("etc/rancher/k3s/config.yaml.d/95-more.yaml");
    fs::write(other, "kubelet-arg: max-pods=200\n").unwrap();
    let said = node.install().unwrap_err().to_string();
    assert!(said.contains("95-more.yaml sets kubelet-arg"), "{said}");
    assert_eq!(node.text(K3S_FILE), earlier);
    leave(&node.root, &node.systemd, false, &mut |_| {}).unwrap();
    assert!(!node.path(K3S_FILE).exists());
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
fn leaving_gives_the_kubelet_its_old_runtime_and_keeps_what_is_installed() {
    let node = Node::new();
    leave(&node.root, &node.systemd, false, &mut |_| {}).unwrap();
    node.install().unwrap();
    node.process(77, "podvisor-vmm", "");
    fs::write(node.path("proc/77/cgroup"), "0::/kubepods.slice/kubepods-pod1.slice/podvisor-a.scope\n")
        .unwrap();
    // A tenant's program of that name holds nothing up.
    node.process(78, "podvisor-vmm", "");
    fs::write(node.path("proc/78/cgroup"), "0::/kubepods.slice/kubepods-pod2.slice/cri-b.scope\n").unwrap();
    // So does the kernel show it to a container with a cgroup namespace of its own, with the driver cgroupfs.
    node.process(79, "podvisor-vmm", "");
    fs::write(node.path("proc/79/cgroup"), "0::/../../podB/c2\n").unwrap();
    fs::write(node.path("proc/79/status"), "Name:\tpodvisor-vmm\nNSpid:\t79\t5\n").unwrap();
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
