//! Installations: the files they put on a node, and nodes refused by them.

use std::error::Error;
use std::fs;
use std::io::Read;
use std::os::unix::fs::{MetadataExt, symlink};

use super::node::Node;
use crate::host::Host;
use crate::install::InstallError;
use crate::look::Refusal;
use crate::settings::UnnamedPods;

#[test]
fn a_node_gets_files_configuration_unit_and_daemon() {
    let node = Node::new();
    let lines = node.install().unwrap();
    assert_eq!(node.text("opt/podvisor/bin/podvisor"), "podvisor first");
    assert_eq!(fs::metadata(node.path("opt/podvisor/bin/podvisor")).unwrap().mode() & 0o7777, 0o755);
    assert_eq!(node.text("etc/systemd/system/podvisor.service"), "[Service]");
    assert!(!node.path("opt/podvisor/lib/systemd").exists());
    let configuration: toml::Table = node.text("etc/podvisor/config.toml").parse().unwrap();
    assert_eq!(configuration["upstream"]["socket"].as_str(), Some("/run/containerd/containerd.sock"));
    assert_eq!(configuration["upstream"]["unnamed_pods"].as_str(), Some("all"));
    assert!(node.is_running("podvisor.service"));
    assert!(node.systemd.enabled.borrow().contains("podvisor.service"));
    assert!(!node.is_running("podvisor-device-plugin.service"), "only where the operator wants it");
    assert!(lines.iter().any(|line| line == "check: ok    user: root"), "{lines:?}");
    assert!(lines.last().unwrap().contains("kubelet.service was switched"), "{lines:?}");
    let template = fs::metadata(node.path("opt/podvisor/lib/podvisor/scratch.ext4")).unwrap();
    assert!(template.blocks() * 512 < template.len(), "each pod's disk would have no holes");
}

#[test]
fn a_second_installation_changes_and_starts_nothing() {
    let node = Node::new();
    node.install().unwrap();
    let (files, started) = (node.files(true), node.systemd.started.borrow().len());
    let lines = node.install().unwrap();
    assert_eq!(node.systemd.started.borrow().len(), started, "{lines:?}");
    assert!(files == node.files(true));
    assert!(lines.iter().any(|line| line.starts_with("files: 0 of 6")), "{lines:?}");
}

#[test]
fn a_new_configuration_has_the_mirrors_of_containerd_unless_podvisor_has_some() {
    let mirrors = |node: &Node| {
        let configuration: toml::Table = node.text("etc/podvisor/config.toml").parse().unwrap();
        let set = configuration.get("registries")?.get("config_dir")?.as_str()?;
        Some(set.to_owned())
    };
    let node = Node::new();
    fs::create_dir_all(node.path("etc/containerd/certs.d")).unwrap();
    node.install().unwrap();
    assert_eq!(mirrors(&node), None, "there are none");
    let with_mirrors = || {
        let node = Node::new();
        fs::create_dir_all(node.path("etc/containerd/certs.d/docker.io")).unwrap();
        fs::write(node.path("etc/containerd/certs.d/docker.io/hosts.toml"), "").unwrap();
        node
    };
    let node = with_mirrors();
    let lines = node.install().unwrap();
    assert_eq!(mirrors(&node).as_deref(), Some("/etc/containerd/certs.d"));
    let line = "mirrors: those of the other runtime, in /etc/containerd/certs.d";
    assert!(lines.iter().any(|said| said == line), "{lines:?}");
    let node = with_mirrors();
    fs::create_dir_all(node.path("etc/podvisor/certs.d/_default")).unwrap();
    node.install().unwrap();
    assert_eq!(mirrors(&node), None, "Podvisor has its own");
    let mut node = with_mirrors();
    node.spec.upstream = Some("/run/crio/crio.sock".into());
    node.install().unwrap();
    assert_eq!(mirrors(&node), None, "they are not of that runtime");
}

fn downgrade_refused(node: &Node) {
    let refused = node.install().unwrap_err();
    let why = Error::source(&refused).unwrap().to_string();
    assert!(why.contains("in schema 3, and this one reads schema 2 at most"), "{why}");
}

#[test]
fn a_release_that_cannot_read_the_records_replaces_nothing() {
    let mut node = Node::new();
    node.spec.schema = 3;
    node.install().unwrap();
    node.spec.schema = 2;
    node.payload("second");
    downgrade_refused(&node);
    // As after a boot of the node: then the installed program is asked.
    *node.systemd.invocation.borrow_mut() = "another".into();
    *node.systemd.schema.borrow_mut() = "3\n".into();
    downgrade_refused(&node);
    assert_eq!(node.text("opt/podvisor/bin/podvisor"), "podvisor first");
    // One of its own, an older one, and one that does not say.
    for schema in ["2\n", "1\n", "no such command\n"] {
        node.payload(schema.trim());
        *node.systemd.invocation.borrow_mut() = "another".into();
        *node.systemd.schema.borrow_mut() = schema.into();
        node.install().unwrap();
    }
}

#[test]
fn the_earlier_release_comes_back_over_one_whose_daemon_was_never_started() {
    let mut node = Node::new();
    node.install().unwrap();
    let upgrade_fails = |node: &mut Node| {
        node.payload("second");
        node.spec.schema = 3;
        *node.systemd.schema.borrow_mut() = "3\n".into();
        *node.systemd.check_fails.borrow_mut() = Some("FAIL  a Linux guest on KVM: no; wait\n".into());
        assert!(matches!(node.install(), Err(InstallError::Check(_))));
        *node.systemd.check_fails.borrow_mut() = None;
        node.payload("first");
        node.spec.schema = 2;
    };
    upgrade_fails(&mut node);
    node.install().unwrap();
    assert_eq!(node.text("opt/podvisor/bin/podvisor"), "podvisor first");
    // A boot starts what is installed, and with it the records are of its schema.
    upgrade_fails(&mut node);
    node.systemd.run("systemctl", &["restart", "podvisor.service"]).unwrap();
    downgrade_refused(&node);
}

#[test]
fn an_upgrade_restarts_the_daemon_and_keeps_configuration_and_open_files() {
    let node = Node::new();
    node.install().unwrap();
    fs::write(node.path("etc/podvisor/config.toml"), "[upstream]\nsocket = \"/by/hand.sock\"\n").unwrap();
    let mut open = fs::File::open(node.path("opt/podvisor/bin/podvisor")).unwrap();
    node.systemd.started.borrow_mut().clear();
    node.payload("second");
    node.install().unwrap();
    let mut old = String::new();
    open.read_to_string(&mut old).unwrap();
    assert_eq!(
        (old.as_str(), node.text("opt/podvisor/bin/podvisor").as_str()),
        ("podvisor first", "podvisor second")
    );
    assert!(
        !node.path("opt/podvisor/share/first").exists() && node.path("opt/podvisor/share/second").exists()
    );
    assert_eq!(*node.systemd.started.borrow(), ["podvisor-check.service", "podvisor.service"]);
    assert!(node.text("etc/podvisor/config.toml").contains("by/hand"));
}

#[test]
fn a_changed_file_is_put_right_and_a_link_in_its_place_is_not_followed() {
    let node = Node::new();
    node.install().unwrap();
    let outside = node.directory.path().join("outside");
    fs::write(&outside, "vmm").unwrap();
    fs::write(node.path("opt/podvisor/bin/podvisor"), "podvisor wrong").unwrap();
    fs::remove_file(node.path("opt/podvisor/bin/podvisor-vmm")).unwrap();
    symlink(&outside, node.path("opt/podvisor/bin/podvisor-vmm")).unwrap();
    node.install().unwrap();
    assert_eq!(node.text("opt/podvisor/bin/podvisor"), "podvisor first");
    assert!(fs::symlink_metadata(node.path("opt/podvisor/bin/podvisor-vmm")).unwrap().is_file());
    assert_eq!(fs::read_to_string(outside).unwrap(), "vmm");
}

#[test]
fn links_of_the_node_lead_where_they_lead_on_the_node() {
    let node = Node::new();
    let outside = node.directory.path().join("opt-outside");
    fs::create_dir(&outside).unwrap();
    fs::remove_dir(node.path("opt")).unwrap();
    fs::create_dir_all(node.path("mnt/opt")).unwrap();
    fs::create_dir_all(node.path("mnt/etc")).unwrap();
    // An absolute link, and one above the root.
    symlink("/mnt/opt", node.path("opt")).unwrap();
    symlink("../../../../../../../mnt/etc", node.path("etc/podvisor")).unwrap();
    node.install().unwrap();
    assert_eq!(node.text("mnt/opt/podvisor/bin/podvisor"), "podvisor first");
    assert!(node.path("mnt/etc/config.toml").exists());
    assert!(fs::read_dir(&outside).unwrap().next().is_none());
    // A dangling link on the node is no directory for files.
    let other = Node::new();
    fs::remove_dir(other.path("opt")).unwrap();
    symlink(&outside, other.path("opt")).unwrap();
    assert!(matches!(other.install(), Err(InstallError::Root(_))));
    assert!(fs::read_dir(&outside).unwrap().next().is_none());
}

fn refused(prepare: impl FnOnce(&Node)) -> Refusal {
    let node = Node::new();
    prepare(&node);
    let before = node.files(true);
    let error = node.install().unwrap_err();
    assert!(error.source().is_some(), "{error}");
    assert!(before == node.files(true), "a node that is refused stays as it is");
    assert!(node.systemd.started.borrow().is_empty());
    match error {
        InstallError::Refused(refusal) => refusal,
        error => panic!("{error}"),
    }
}

#[test]
fn a_node_that_is_not_fit_is_refused_and_stays_as_it_is() {
    let systemd = refused(|node| fs::remove_dir_all(node.path("run/systemd")).unwrap());
    assert!(matches!(systemd, Refusal::NoSystemd));
    assert!(matches!(refused(|node| fs::remove_file(node.path("dev/kvm")).unwrap()), Refusal::NoKvm));
    let plain = refused(|node| {
        fs::remove_file(node.path("dev/kvm")).unwrap();
        fs::write(node.path("dev/kvm"), "").unwrap();
    });
    assert!(matches!(plain, Refusal::NoKvm), "a file is no device");
}

#[test]
fn what_others_have_installed_is_left_alone() {
    let package = refused(|node| {
        fs::create_dir_all(node.path("usr/bin")).unwrap();
        fs::write(node.path("usr/bin/podvisor"), "of a package").unwrap();
    });
    assert!(matches!(package, Refusal::Installed(_)), "{package}");
    let by_hand = refused(|node| fs::write(node.path("etc/systemd/system/podvisor.service"), "x").unwrap());
    assert!(matches!(by_hand, Refusal::Foreign(_)), "{by_hand}");
    let masked =
        refused(|node| symlink("/dev/null", node.path("etc/systemd/system/podvisor.service")).unwrap());
    assert!(matches!(masked, Refusal::Foreign(_)), "{masked}");
}

#[test]
fn a_tree_that_is_no_installation_is_refused_by_what_it_lacks() {
    for (part, named) in [
        ("opt/podvisor/bin/podvisor", "bin/podvisor"),
        ("etc/podvisor/config.toml", "config.toml"),
        ("opt/podvisor/lib/systemd/system/podvisor.service", "podvisor.service"),
    ] {
        let node = Node::new();
        fs::remove_file(node.spec.from.join(part)).unwrap();
        let said = node.install().unwrap_err().to_string();
        assert!(said.contains(named), "{said}");
    }
}

#[test]
fn a_node_whose_check_fails_has_no_new_daemon_and_its_kubelet_is_left_alone() {
    let node = Node::new();
    *node.systemd.check_fails.borrow_mut() =
        Some("FAIL  a Linux guest on KVM: no; use another host\n".into());
    let said = node.install().unwrap_err().to_string();
    assert!(said.ends_with("FAIL  a Linux guest on KVM: no; use another host"), "{said}");
    assert!(!node.is_running("podvisor.service"));
    assert!(!node.path("etc/systemd/system/kubelet.service.d/90-podvisor.conf").exists());
    assert!(!node.path("run/systemd/system/podvisor-check.service").exists());
    *node.systemd.check_fails.borrow_mut() = None;
    node.install().unwrap();
    assert!(node.is_running("podvisor.service"));
}

#[test]
fn a_new_configuration_has_what_was_asked_for() {
    let mut node = Node::new();
    node.spec.upstream = Some("/run/crio/crio.sock".into());
    node.spec.handlers = vec!["crun".into(), "nvidia".into()];
    node.spec.unnamed_pods = UnnamedPods::Node;
    node.install().unwrap();
    let configuration: toml::Table = node.text("etc/podvisor/config.toml").parse().unwrap();
    let upstream = &configuration["upstream"];
    assert_eq!(upstream["socket"].as_str(), Some("/run/crio/crio.sock"));
    assert_eq!(upstream["handlers"][1].as_str(), Some("nvidia"));
    assert_eq!(upstream["unnamed_pods"].as_str(), Some("node"));
}
