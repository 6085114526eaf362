//! Removals: the removed files, and the remaining ones.

use std::fs;
use std::os::unix::fs::symlink;

use super::node::{Node, WAITING};
use crate::leave::LeaveError;
use crate::processes;
use crate::remove::RemoveError;

/// New paths on the node.
fn left(node: &Node, before: &super::node::Files) -> Vec<String> {
    let now = node.files(true);
    assert!(before.keys().all(|path| now.contains_key(path)), "something else was taken away");
    now.keys().filter(|path| !before.contains_key(*path)).map(|path| path.display().to_string()).collect()
}

#[test]
fn a_removed_node_is_as_before_but_for_its_configuration_and_state() {
    let node = Node::new();
    let before = node.files(true);
    node.install().unwrap();
    fs::create_dir_all(node.path("var/lib/podvisor")).unwrap();
    node.remove(false, false).unwrap();
    let stays = [
        "etc/podvisor",
        "etc/podvisor/config.toml",
        "etc/systemd/system/kubelet.service.d",
        "var/lib/podvisor",
    ];
    assert_eq!(left(&node, &before), stays);
    assert!(!node.is_running("podvisor.service") && node.is_running("kubelet.service"));
    assert!(node.systemd.enabled.borrow().is_empty());
    // A second removal has nothing to do.
    node.remove(false, false).unwrap();
}

#[test]
fn a_kubelet_that_somebody_else_switched_keeps_its_runtime() {
    let mut node = Node::new();
    node.spec.switch_kubelet = false;
    node.install().unwrap();
    let uses = |socket: &str| {
        let arguments = format!("kubelet\0--container-runtime-endpoint=unix://{socket}\0");
        fs::write(node.path("proc/40/cmdline"), arguments).unwrap();
    };
    for spelling in ["/run/podvisor/podvisor.sock", "/var/run/podvisor/podvisor.sock"] {
        uses(spelling);
        let refused = node.remove(true, true).unwrap_err();
        assert!(
            matches!(&refused, RemoveError::InUse(socket) if socket.ends_with("podvisor.sock")),
            "{refused}"
        );
    }
    assert!(node.is_running("podvisor.service") && node.path("opt/podvisor/bin/podvisor").exists());
    uses("/run/containerd/containerd.sock");
    node.remove(false, false).unwrap();
}

#[test]
fn a_purge_takes_configuration_and_state_and_follows_no_link() {
    let node = Node::new();
    let before = node.files(true);
    node.install().unwrap();
    let precious = node.directory.path().join("precious");
    fs::create_dir(&precious).unwrap();
    fs::write(precious.join("file"), "x").unwrap();
    fs::create_dir_all(node.path("var/lib/podvisor/a/b/c")).unwrap();
    fs::write(node.path("var/lib/podvisor/a/b/file"), "x").unwrap();
    symlink(&precious, node.path("var/lib/podvisor/a/link")).unwrap();
    fs::create_dir_all(node.path("var/lib/cni")).unwrap();
    symlink(&precious, node.path("var/lib/cni/podvisor")).unwrap();
    node.remove(false, true).unwrap();
    assert!(precious.join("file").exists());
    let stays = ["etc/systemd/system/kubelet.service.d", "var/lib/cni", "var/lib/cni/podvisor"];
    assert_eq!(left(&node, &before), stays);
}

#[test]
fn a_purge_is_refused_while_something_is_mounted_in_the_state() {
    let node = Node::new();
    node.install().unwrap();
    let mounts =
        "9 1 0:5 / /var/lib/podvisor rw - ext4 d rw\n10 1 0:5 / /run/podvisor/pods/a rw - tmpfs x rw\n";
    fs::write(node.path("proc/1/mountinfo"), mounts).unwrap();
    let error = node.remove(false, true).unwrap_err();
    assert!(matches!(&error, RemoveError::Mounted(place) if place == "/run/podvisor/pods/a"), "{error}");
    assert!(node.path("opt/podvisor/bin/podvisor").exists());
    fs::write(node.path("proc/1/mountinfo"), "9 1 0:5 / /var/lib/podvisor rw - ext4 d rw\n").unwrap();
    node.remove(false, true).unwrap();
}

#[test]
fn the_mounts_of_vmms_that_wait_for_pods_go_with_the_daemon() {
    let node = Node::new();
    node.install().unwrap();
    fs::write(node.path("proc/1/mountinfo"), format!("10 1 0:5 / {WAITING} rw - tmpfs x rw\n")).unwrap();
    node.remove(false, true).unwrap();
    assert!(!node.path("opt/podvisor").exists());
}

#[test]
fn vms_are_in_the_way_of_a_removal_and_force_ends_them() {
    let node = Node::new();
    node.install().unwrap();
    node.process(77, "podvisor-vmm", "");
    node.process(78, "podvisor-vmm", "");
    let before = node.files(true);
    let error = node.remove(false, false).unwrap_err();
    assert!(error.to_string().contains("processes 77, 78: drain the node"), "{error}");
    assert!(before == node.files(true) && node.is_running("podvisor.service"));
    node.remove(true, false).unwrap();
    assert!(!node.path("proc/77").exists() && !node.path("opt/podvisor").exists());
}

#[test]
fn vms_that_the_daemon_made_ahead_are_in_nobodys_way() {
    for cgroups in ["0::/podvisor-unclaimed\n", "4:memory:/podvisor-unclaimed\n0::/system.slice\n"] {
        let node = Node::new();
        node.install().unwrap();
        node.process(77, "podvisor-vmm", "");
        fs::write(node.path("proc/77/cgroup"), cgroups).unwrap();
        node.process(78, "podvisor-vmm", "");
        fs::write(node.path("proc/78/cgroup"), "0::/podvisor/podvisor-0123\n").unwrap();
        let error = node.remove(false, false).unwrap_err();
        assert!(error.to_string().contains("processes 78: drain the node"), "{error}");
        fs::remove_dir_all(node.path("proc/78")).unwrap();
        node.remove(false, false).unwrap();
    }
}

#[test]
fn a_containers_process_with_the_name_of_a_vmm_is_in_nobodys_way() {
    let node = Node::new();
    node.install().unwrap();
    // With the driver cgroupfs, from a container beside it. It has the node's process IDs.
    let pod = "pod1f0c9b0e-6f9d-4c58-9a77-3f4c6a2d1e00";
    for (pid, name) in [(77, "podvisor-vmm"), (79, "kubelet")] {
        node.process(pid, name, "");
        fs::write(node.path(&format!("proc/{pid}/cgroup")), format!("0::/../../{pod}/c2\n")).unwrap();
        fs::write(node.path(&format!("proc/{pid}/status")), format!("NSpid:\t{pid}\n")).unwrap();
    }
    node.process(78, "podvisor-vmm", "");
    fs::write(node.path("proc/78/cgroup"), format!("0::/../../{pod}/podvisor-0123\n")).unwrap();
    let error = node.remove(false, false).unwrap_err();
    assert!(error.to_string().contains("processes 78: drain the node"), "{error}");
    let kubelets: Vec<u32> =
        processes::of_node(&node.root, "kubelet").unwrap().iter().map(|found| found.pid).collect();
    assert_eq!(kubelets, [40]);
}

#[test]
fn vms_without_a_program_to_end_them_keep_everything_in_its_place() {
    let node = Node::new();
    node.install().unwrap();
    node.process(77, "podvisor-vmm", "");
    fs::remove_file(node.path("opt/podvisor/bin/podvisor")).unwrap();
    let error = node.remove(true, false).unwrap_err();
    assert!(matches!(error, RemoveError::Leave(LeaveError::NoProgram(_))), "{error}");
    assert!(node.path("etc/systemd/system/podvisor.service").exists());
}

#[test]
fn a_node_that_nothing_was_installed_on_stays_as_it_is() {
    let node = Node::new();
    let before = node.files(true);
    node.remove(true, true).unwrap();
    assert!(before == node.files(true) && node.systemd.started.borrow().is_empty());
}

#[test]
fn a_root_that_shows_no_processes_is_not_taken_for_a_node_without_vms() {
    let node = Node::new();
    node.install().unwrap();
    fs::rename(node.path("proc"), node.path("elsewhere")).unwrap();
    let error = node.remove(false, false).unwrap_err();
    assert!(error.to_string().contains("shows no processes"), "{error}");
    assert!(node.path("opt/podvisor/bin/podvisor").exists());
}
