//! The switch and the way back on k3s, RKE2 and k0s.

use std::fs;

use super::node::Node;
use crate::leave::{LeaveError, leave};

/// A node of a distribution.
fn of(unit: &str) -> Node {
    let node = Node::new();
    fs::remove_dir_all(node.path("proc/40")).unwrap();
    for units in [&node.systemd.loaded, &node.systemd.active] {
        *units.borrow_mut() = [unit.to_owned()].into();
    }
    node
}

/// A node of k3s, with a containerd of others beside its own.
pub(super) fn k3s() -> Node {
    let node = of("k3s-agent.service");
    node.process(50, "k3s-agent", "/usr/local/bin/k3s agent\0");
    node
}

/// A node of RKE2, and its kubelet's process.
fn rke2(kubelet: &str) -> Node {
    let node = of("rke2-server.service");
    node.process(51, "kubelet", kubelet);
    node
}

pub(super) const K3S_FILE: &str = "etc/rancher/k3s/config.yaml.d/90-podvisor.yaml";
const ARGUMENT: &str = "kubelet-arg+:\n  - container-runtime-endpoint=unix:///run/podvisor/podvisor.sock\n";

#[test]
fn k3s_is_switched_by_an_argument_of_its_kubelet_and_back() {
    let node = k3s();
    // Pods of its own containerd go on behind Podvisor.
    let shim = "containerd-shim-runc-v2\0-namespace\0k8s.io\0-address\0/run/k3s/containerd/containerd.sock\0";
    node.process(52, "containerd-shim", shim);
    node.install().unwrap();
    assert!(node.text(K3S_FILE).ends_with(ARGUMENT), "{}", node.text(K3S_FILE));
    assert!(node.systemd.started.borrow().contains(&"k3s-agent.service".to_owned()));
    let settings = node.text("etc/podvisor/config.toml");
    assert!(settings.contains("\nsocket = \"/run/k3s/containerd/containerd.sock\"\n"), "{settings}");
    assert!(settings.contains("\n#conf_dir = "), "without a network of its own, the usual directories count");
    node.remove(false, false).unwrap();
    assert!(!node.path(K3S_FILE).exists() && node.is_running("k3s-agent.service"));
}

#[test]
fn a_new_configuration_on_k3s_has_the_directories_of_its_network() {
    for (present, expected) in [("cni", "data/cni"), ("current/bin", "data/current/bin")] {
        let node = k3s();
        let rancher = "var/lib/rancher/k3s";
        for directory in [format!("{rancher}/agent/etc/cni/net.d"), format!("{rancher}/data/{present}")] {
            fs::create_dir_all(node.path(&directory)).unwrap();
        }
        fs::write(node.path(&format!("{rancher}/agent/etc/cni/net.d/10-flannel.conflist")), "{}").unwrap();
        node.install().unwrap();
        let settings = node.text("etc/podvisor/config.toml");
        assert!(settings.contains(&format!("conf_dir = \"/{rancher}/agent/etc/cni/net.d\"")), "{settings}");
        assert!(settings.contains(&format!("bin_dirs = [\"/{rancher}/{expected}\", ")), "{settings}");
    }
}

#[test]
fn the_network_of_k3s_is_found_in_the_data_directory_that_it_has() {
    let by_file = |node: &Node| {
        fs::create_dir_all(node.path("etc/rancher/k3s")).unwrap();
        fs::write(node.path("etc/rancher/k3s/config.yaml"), "data-dir: /data/k3s\n").unwrap();
    };
    let by_argument = |node: &Node| {
        *node.systemd.command.borrow_mut() = "/usr/local/bin/k3s agent '--data-dir' '/data/k3s'".into();
    };
    let by_environment = |node: &Node| {
        fs::write(node.path("etc/k3s-agent"), "K3S_TOKEN=x\nK3S_DATA_DIR='/data/k3s'\n").unwrap();
        let files = "Environment=\nEnvironmentFiles=/etc/k3s-agent (ignore_errors=yes)\n";
        *node.systemd.environment.borrow_mut() = files.into();
    };
    let ways: [&dyn Fn(&Node); 3] = [&by_file, &by_argument, &by_environment];
    for (nth, way) in ways.into_iter().enumerate() {
        let node = k3s();
        way(&node);
        let net = "data/k3s/agent/etc/cni/net.d";
        fs::create_dir_all(node.path(net)).unwrap();
        fs::create_dir_all(node.path("data/k3s/data/cni")).unwrap();
        fs::write(node.path(&format!("{net}/10-flannel.conflist")), "{}").unwrap();
        node.install().unwrap();
        let settings = node.text("etc/podvisor/config.toml");
        assert!(settings.contains(&format!("conf_dir = \"/{net}\"")), "{nth}: {settings}");
        assert!(settings.contains("bin_dirs = [\"/data/k3s/data/cni\", "), "{nth}: {settings}");
    }
}

#[test]
fn a_new_configuration_has_the_mirrors_of_the_distributions_containerd() {
    let kubelet = "kubelet\0--container-runtime-endpoint=unix:///run/k3s/containerd/containerd.sock\0";
    let moved = rke2(kubelet);
    fs::create_dir_all(moved.path("etc/rancher/rke2")).unwrap();
    fs::write(moved.path("etc/rancher/rke2/config.yaml"), "data-dir: /data/rke2\n").unwrap();
    let places =
        [(k3s(), "var/lib/rancher/k3s"), (rke2(kubelet), "var/lib/rancher/rke2"), (moved, "data/rke2")];
    for (mut node, data) in places {
        node.spec.switch_kubelet = false;
        let mirrors = format!("{data}/agent/etc/containerd/certs.d");
        fs::create_dir_all(node.path(&format!("{mirrors}/docker.io"))).unwrap();
        let lines = node.install().unwrap();
        let settings = node.text("etc/podvisor/config.toml");
        assert!(settings.contains(&format!("\nconfig_dir = \"/{mirrors}\"\n")), "{settings}");
        assert!(lines.contains(&format!("mirrors: those of the other runtime, in /{mirrors}")), "{lines:?}");
    }
}

#[test]
fn a_file_of_k3s_that_replaces_the_arguments_keeps_it_from_being_switched() {
    let node = k3s();
    let other = node.path("etc/rancher/k3s/config.yaml.d/95-more.yaml");
    fs::create_dir_all(other.parent().unwrap()).unwrap();
    fs::write(&other, "kubelet-arg: max-pods=200\n").unwrap();
    let said = node.install().unwrap_err().to_string();
    assert!(said.contains("/etc/rancher/k3s/config.yaml.d/95-more.yaml sets kubelet-arg"), "{said}");
    assert!(!node.path(K3S_FILE).exists());
    assert!(!node.systemd.started.borrow().contains(&"k3s-agent.service".to_owned()), "it is not restarted");
    fs::write(&other, "kubelet-arg+: max-pods=200\n").unwrap();
    node.install().unwrap();
    assert!(node.path(K3S_FILE).exists());
}

#[test]
fn an_argument_of_the_unit_that_overrides_the_switch_is_named() {
    for (unit, arguments, named) in [
        (
            "k3s-agent.service",
            "k3s agent --kubelet-arg=container-runtime-endpoint=unix:///x",
            "container-runtime-endpoint",
        ),
        ("k0sworker.service", "k0s worker --kubelet-extra-args=--v=2", "--kubelet-extra-args"),
        ("k3s-agent.service", "k3s agent --config=/etc/k3s.yaml", "--config"),
        ("rke2-server.service", "rke2 server '-c' '/etc/rke2.yaml'", "-c"),
    ] {
        let node = of(unit);
        *node.systemd.command.borrow_mut() = arguments.into();
        let said = node.install().unwrap_err().to_string();
        assert!(said.contains(&format!("{unit} is started with {named}")), "{said}");
        assert!(node.is_running("podvisor.service"), "all else is installed");
    }
}

#[test]
fn a_configuration_in_another_place_keeps_k3s_from_being_switched() {
    let node = k3s();
    *node.systemd.command.borrow_mut() = "k3s agent --config /etc/rancher/k3s/config.yaml".into();
    *node.systemd.environment.borrow_mut() = "Environment=A=b K3S_CONFIG_FILE=/etc/k3s.yaml\n".into();
    let said = node.install().unwrap_err().to_string();
    assert!(said.contains("k3s-agent.service is started with K3S_CONFIG_FILE"), "{said}");
    assert!(!node.path(K3S_FILE).exists());
    // The usual place may be named.
    node.systemd.environment.borrow_mut().clear();
    node.install().unwrap();
    assert!(node.path(K3S_FILE).exists());
}

#[test]
fn rke2_is_switched_once_its_kubelet_runs_with_the_daemons_socket() {
    let own = "kubelet\0--config-dir=/var/lib/rancher/rke2/agent/etc/kubelet.conf.d\0";
    let node = rke2(own);
    let defaults = node.path("var/lib/rancher/rke2/agent/etc/kubelet.conf.d/00-rke2-defaults.conf");
    fs::create_dir_all(defaults.parent().unwrap()).unwrap();
    fs::write(&defaults, "containerRuntimeEndpoint: unix:///run/k3s/containerd/containerd.sock\n").unwrap();
    let file = "etc/rancher/rke2/config.yaml.d/90-podvisor.yaml";
    // The unit keeps running, but its kubelet is the old one.
    let said = node.install().unwrap_err().to_string();
    assert!(
        said.contains("rke2-server.service did not keep running with Podvisor (it has no kubelet"),
        "{said}"
    );
    assert!(!node.path(file).exists());
    let settings = node.text("etc/podvisor/config.toml");
    assert!(settings.contains("\nsocket = \"/run/k3s/containerd/containerd.sock\"\n"), "{settings}");
    let switched = "--container-runtime-endpoint=unix:///run/podvisor/podvisor.sock\0";
    fs::write(node.path("proc/51/cmdline"), format!("{own}{switched}")).unwrap();
    node.install().unwrap();
    assert!(node.text(file).ends_with(ARGUMENT));
}

#[test]
fn k0s_is_switched_by_an_argument_of_its_unit_and_back() {
    let node = of("k0sworker.service");
    *node.systemd.command.borrow_mut() = "/usr/local/bin/k0s worker --token-file=/t".into();
    let switched = "kubelet\0--container-runtime-endpoint=unix:///run/podvisor/podvisor.sock\0";
    node.process(51, "kubelet", switched);
    fs::create_dir_all(node.path("run/k0s")).unwrap();
    fs::write(node.path("run/k0s/containerd.sock"), "").unwrap();
    fs::remove_file(node.path("run/containerd/containerd.sock")).unwrap();
    node.install().unwrap();
    let file = "etc/systemd/system/k0sworker.service.d/90-podvisor.conf";
    let command = "ExecStart=\nExecStart=/usr/local/bin/k0s worker --token-file=/t \
                   --kubelet-extra-args=--container-runtime-endpoint=unix:///run/podvisor/podvisor.sock\n";
    assert!(node.text(file).ends_with(command), "{}", node.text(file));
    let settings = node.text("etc/podvisor/config.toml");
    assert!(settings.contains("\nsocket = \"/run/k0s/containerd.sock\"\n"), "{settings}");
    leave(&node.root, &node.systemd, false, &mut |_| {}).unwrap();
    assert!(!node.path(file).exists() && node.is_running("k0sworker.service"));
}

#[test]
fn a_distribution_does_not_leave_while_pods_run_in_the_runtime_beside_it() {
    let node = k3s();
    node.install().unwrap();
    let shim = |namespace: &str| {
        format!(
            "containerd-shim-runc-v2\0-namespace\0{namespace}\0-address\0/run/containerd/containerd.sock\0"
        )
    };
    node.process(60, "containerd-shim", &shim("k8s.io"));
    for force in [false, true] {
        let refused = leave(&node.root, &node.systemd, force, &mut |_| {}).unwrap_err();
        assert!(
            matches!(&refused, LeaveError::OtherPods { unit } if unit == "k3s-agent.service"),
            "{refused}"
        );
    }
    assert!(node.path(K3S_FILE).exists());
    // Containers of Docker are no pods.
    fs::write(node.path("proc/60/cmdline"), shim("moby")).unwrap();
    leave(&node.root, &node.systemd, false, &mut |_| {}).unwrap();
    assert!(!node.path(K3S_FILE).exists());
}
