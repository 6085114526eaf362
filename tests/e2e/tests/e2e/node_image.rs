//! The image for installing Podvisor on nodes, in a Debian system with a systemd and a containerd
//! (`tests/deb/boot`): run like the DaemonSet's container, with exactly its rights, under pods of both
//! runtimes. A program recording its arguments stands in for the kubelet.

use std::path::{Path, PathBuf};
use std::process::ExitStatus;

use proto_cri::v1::PodSandboxState;
use tests_e2e::client::Client;
use tests_e2e::network::{Network, PLUGINS};
use tests_e2e::wait::until_seen;
use tests_e2e::{host, spec};

use crate::package::PACKAGES_VARIABLE;
use crate::system::System;
use crate::upstream;

/// Unpacks the image's one layer, its largest blob.
const UNPACK: &str = "mkdir /layout /image && tar -xf /node.tar -C /layout && \
     tar -xzf $(ls -S /layout/blobs/sha256/* | head -n 1) -C /image && mkdir /image/proc /image/dev && touch /image/dev/null";

/// Runs the following commands like the container: in the image, with the node's processes, its root at /host
/// and the container's rights.
const CONTAINER: &str = "unshare --mount --propagation slave --uts --ipc --cgroup sh -c '\
     mount --rbind / /image/host && mount -t proc proc /image/proc && mount --bind /dev/null /image/dev/null && \
     exec setpriv --no-new-privs --inh-caps=-all --bounding-set=-all,+sys_chroot,+dac_override \
     env -i PATH=/usr/sbin:/usr/bin chroot /image /install/opt/podvisor/bin/podvisor node \"$@\"' container";

const KUBELET: &str = "#!/bin/sh\necho \"$@\" >/run/kubelet.arguments\nwhile :; do sleep 1; done\n";

const KUBELET_UNIT: &str = "[Service]\nEnvironmentFile=-/var/lib/kubelet/kubeadm-flags.env\n\
     ExecStart=/usr/bin/kubelet --config=/var/lib/kubelet/config.yaml $KUBELET_KUBEADM_ARGS\nRestart=always\nRestartSec=10\n";

const SWITCHED: &str = "--container-runtime-endpoint=unix:///run/podvisor/podvisor.sock";

impl System {
    async fn node(&self, arguments: &str) -> (ExitStatus, String) {
        self.try_sh(&format!("{CONTAINER} {arguments}")).await
    }

    async fn node_does(&self, arguments: &str) -> String {
        let (status, text) = self.node(arguments).await;
        assert!(status.success(), "{arguments}: {status}: {text}");
        text
    }

    async fn kubelet(&self) -> String {
        assert_eq!(self.sh("systemctl is-active kubelet").await, "active\n");
        self.sh("cat /run/kubelet.arguments").await
    }

    fn write(&self, path: &str, text: &str) {
        let path = self.path(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }

    async fn containerd(&self) -> Client {
        Client::connect(&self.path("/run/containerd/containerd.sock")).await.unwrap()
    }
}

/// A node as kubeadm has it, with the image on it.
async fn node(system: &System, packages: &Path, network: &Network) {
    system.add_network(network);
    let registry = host::registry().await.unwrap();
    let (layers, mut config) = tests_registry::busybox_image().unwrap();
    config["Cmd"] = serde_json::json!(["/bin/sleep", "1000000"]);
    registry.push_image("podvisor/pause", "1", layers, config).await.unwrap();
    let cri = "plugins.\"io.containerd.grpc.v1.cri\"";
    let containerd = format!(
        "version = 2\n[{cri}]\nsandbox_image = \"{}/podvisor/pause:1\"\n[{cri}.cni]\nbin_dir = {PLUGINS:?}\n\
         [{cri}.containerd]\nsnapshotter = \"native\"\n\
         [{cri}.containerd.runtimes.runc]\nruntime_type = \"io.containerd.runc.v2\"\n",
        registry.addr
    );
    system.write("/etc/containerd/config.toml", &containerd);
    system.write("/usr/bin/kubelet", KUBELET);
    system.write("/usr/lib/systemd/system/kubelet.service", KUBELET_UNIT);
    system.write(
        "/var/lib/kubelet/config.yaml",
        "containerRuntimeEndpoint: unix:///run/containerd/containerd.sock\n",
    );
    system
        .sh("chmod 755 /usr/bin/kubelet; systemctl daemon-reload; systemctl start containerd kubelet")
        .await;
    std::fs::copy(packages.join("node.tar"), system.path("/node.tar")).unwrap();
    system.sh(UNPACK).await;
}

/// Kills an installation somewhere, once it has begun with its files.
async fn kill_an_installation(system: &System) {
    let line = format!(
        "setsid {CONTAINER} install --root=/host & \
         until [ -e /opt/podvisor/bin/podvisor ] || ! kill -0 $!; do sleep 0.01; done; kill -KILL -$!; wait $!"
    );
    let (_, text) = system.try_sh(&line).await;
    assert!(!text.contains("daemon: started"), "{text}");
}

#[tokio::test]
async fn a_node_gets_podvisor_from_its_image_and_loses_it_again() {
    let Some(packages) = std::env::var_os(PACKAGES_VARIABLE).map(PathBuf::from) else {
        eprintln!("skipped: {PACKAGES_VARIABLE} is not set; tests/oci/run makes the image there");
        return;
    };
    let dir = tempfile::tempdir().unwrap();
    let tree = dir.path().join("system");
    std::fs::create_dir(&tree).unwrap();
    let network = Network::write(dir.path()).unwrap();
    let system = System::boot(&tree).await;
    node(&system, &packages, &network).await;
    let image = format!("{}/podvisor/busybox:latest", host::registry().await.unwrap().addr);
    let mut old = system.containerd().await;
    let old_image = old.pull(&image).await.unwrap();
    let config = spec::pod("old", Path::new("/var/log/pods"));
    let old_pod = old.run_pod(&config).await.unwrap();
    let sleeper = spec::container("main", &old_image, &["sleep", "100000"]);
    let old_main = upstream::run(&mut old, &old_pod, &config, sleeper).await.unwrap();
    let files_before = system.files().await;
    let kubelet_before = system.kubelet().await;

    // Killed and run again, the installation is complete, and leaves the kubelet alone.
    kill_an_installation(&system).await;
    let said = system.node_does("install --root=/host").await;
    for line in [
        "check: ok    a Linux guest on KVM",
        "check: ok    other runtime",
        "kubelet: is left as it is",
        "NODE podvisor.io/runtime-\n",
    ] {
        assert!(said.contains(line), "{line}: {said}");
    }
    let daemon = system.daemon().await;
    assert_eq!(system.kubelet().await, kubelet_before);
    system.sh("[ $(du -k /opt/podvisor/lib/podvisor/scratch.ext4 | cut -f 1) -lt 8192 ]").await;

    // After the switch the kubelet has Podvisor, and the existing pod goes on behind it.
    let said = system.node_does("install --root=/host --switch-kubelet").await;
    assert!(system.kubelet().await.trim_end().ends_with(SWITCHED), "{said}");
    assert!(said.contains("NODE podvisor.io/runtime=true\n"), "{said}");
    assert_eq!(system.daemon().await, daemon, "{said}");
    let mut client = system.client().await;
    assert!(client.pods().await.unwrap().iter().any(|pod| pod.id == old_pod));
    assert_eq!(client.sh(&old_main, "echo old").await.unwrap(), "old\n");
    let image = client.pull(&image).await.unwrap();
    let pod = client.run_pod_on(&spec::pod("new", Path::new("/var/log/pods")), "podvisor").await.unwrap();
    let main = client.run(&pod, spec::container("main", &image, &["sleep", "100000"])).await.unwrap();

    // A VM is in the way of the way back, and all stays as it is.
    let (status, said) = system.node("remove --root=/host").await;
    assert!(!status.success() && said.contains("VMs still run"), "{said}");
    assert!(system.kubelet().await.trim_end().ends_with(SWITCHED));
    assert_eq!(client.sh(&main, "echo new").await.unwrap(), "new\n");

    // Ended by force, it is gone before the kubelet has its old runtime; the other runtime's pod goes on.
    let said = system.node_does("remove --root=/host --force --purge").await;
    assert!(said.contains("/new"), "{said}");
    kubelet_is(&system, &kubelet_before).await;
    assert!(!system.try_sh("grep -lx podvisor-vmm /proc/[0-9]*/comm").await.0.success());
    assert_eq!(system.files().await, files_before, "left behind: {said}");
    let mut old = system.containerd().await;
    assert_eq!(old.sh(&old_main, "echo old").await.unwrap(), "old\n");
    let ready =
        old.pods().await.unwrap().iter().filter(|pod| pod.state() == PodSandboxState::SandboxReady).count();
    assert_eq!(ready, 1);
    old.stop_pod(&old_pod).await.unwrap();
    old.remove_pod(&old_pod).await.unwrap();
    system.end().await;
    network.remove().await.unwrap();
}

/// Waits until the kubelet runs with these arguments: the removal does not wait for its start.
async fn kubelet_is(system: &System, expected: &str) {
    let arguments = "systemctl is-active --quiet kubelet && cat /run/kubelet.arguments";
    until_seen("the kubelet to have its old runtime again", async || {
        let (_, now) = system.try_sh(arguments).await;
        if now == expected { Ok(()) } else { Err(now) }
    })
    .await;
}
