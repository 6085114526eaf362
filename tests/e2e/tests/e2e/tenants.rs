//! Tries of root with every capability, from inside a container, at the node, its runtimes and another
//! tenant. Each try is first made in a privileged pod of the node, and succeeds there, and then in a pod in a
//! VM, and fails there.

use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

use proto_cri::v1;
use tests_e2e::client::Client;
use tests_e2e::{Host, spec};

use crate::upstream;

/// A secret in files, and a word not printed by any program itself.
const SECRET: &str = "podvisor-keeps-this-secret";

/// A file of the node's shared memory.
const SHARED_MEMORY: &str = "/dev/shm/podvisor-e2e-tenants";

/// A setting of the node's kernel, safe to change for a moment, in seconds.
const SETTING: &str = "/proc/sys/vm/stat_interval";

/// The value written by the tries; no kernel has it by default.
const SET: &str = "37";

/// A try: a line of shell. It reached its aim if it succeeds.
struct Try {
    aim: &'static str,
    line: String,
    /// Returns true if the aim was reached, for tries only visible on the node; otherwise the line's status
    /// decides.
    on_node: Option<Box<dyn Fn() -> bool>>,
}

fn attempt(aim: &'static str, line: String) -> Try {
    Try { aim, line, on_node: None }
}

/// Files on the node as targets of a try: the node's and another tenant's.
struct Targets {
    secret: PathBuf,
    volume: PathBuf,
    sockets: [PathBuf; 2],
    disk: PathBuf,
    netns: PathBuf,
    vmm: u64,
    bridge: String,
    registry: String,
    gateway: String,
}

impl Targets {
    /// Looks for a path in the root of every visible process.
    fn anywhere(test: &str, path: &Path) -> String {
        format!("for root in / /proc/[0-9]*/root/; do {test} $root{} && exit 0; done; false", path.display())
    }

    /// Tries with a line showing success itself.
    fn tries(&self) -> Vec<Try> {
        let Targets { vmm, bridge, registry, gateway, .. } = self;
        let secret = Self::anywhere(&format!("grep -qs {SECRET}"), &self.secret);
        let [daemon, containerd] = &self.sockets;
        let netns = self.netns.display();
        vec![
            attempt("read a file of the node", secret),
            attempt("reach the daemon's socket", Self::anywhere("test -S", daemon)),
            attempt("reach the other runtime's socket", Self::anywhere("test -S", containerd)),
            attempt("read another tenant's disk", Self::anywhere("head -c 1 >/dev/null 2>&1", &self.disk)),
            attempt("see another tenant's VMM", "grep -qs podvisor-vmm /proc/[0-9]*/comm".into()),
            attempt(
                "read another tenant's memory",
                format!(
                    "grep -qs podvisor-vmm /proc/{vmm}/comm && first=$(head -n 1 /proc/{vmm}/maps | cut -d - -f 1) && \
                     dd if=/proc/{vmm}/mem bs=4096 skip=$((0x$first / 4096)) count=1 2>/dev/null | head -c 1 | grep -q ."
                ),
            ),
            attempt(
                "enter another tenant's network",
                format!(
                    "for root in / /proc/[0-9]*/root/; do nsenter --net=$root{netns} ip link 2>/dev/null | grep -q tap && exit 0; \
                     done; false"
                ),
            ),
            attempt("see the node's bridge", format!("ip link show {bridge} >/dev/null 2>&1")),
            attempt(
                "reach a service on the node's loopback",
                format!(
                    "for host in 127.0.0.1 {gateway}; do printf 'GET /v2/ HTTP/1.0\\r\\n\\r\\n' | busybox nc -w 5 $host {registry} \
                     2>/dev/null | grep -q HTTP && exit 0; done; false"
                ),
            ),
            attempt("read the node's shared memory", format!("grep -qs {SECRET} {SHARED_MEMORY}")),
            attempt(
                "open a device of the node",
                "mkdir -p /tmp/dev && mount -t devtmpfs none /tmp/dev && : < /tmp/dev/kvm".into(),
            ),
        ]
    }

    /// Tries with success only visible on the node.
    fn tries_seen_on_the_node(&self, who: &str) -> Vec<Try> {
        let made = self.volume.join(who);
        let said = format!("{SECRET} by {who}");
        vec![
            Try {
                aim: "change a setting of the node's kernel",
                line: format!("echo {SET} > {SETTING}"),
                on_node: Some(Box::new(|| std::fs::read_to_string(SETTING).unwrap().trim() == SET)),
            },
            Try {
                aim: "write to the node's kernel log",
                line: format!("[ -e /dev/kmsg ] || mknod /dev/kmsg c 1 11; echo '{said}' > /dev/kmsg"),
                on_node: Some(Box::new(move || {
                    let output = std::process::Command::new("dmesg").output().unwrap();
                    String::from_utf8_lossy(&output.stdout).contains(&said)
                })),
            },
            Try {
                aim: "leave a device file on the node's disk",
                line: format!("mknod /volume/{who} c 1 3"),
                on_node: Some(Box::new(move || {
                    made.symlink_metadata().is_ok_and(|metadata| metadata.file_type().is_char_device())
                })),
            },
        ]
    }
}

/// Root with every capability and nothing in its way, with the volume of both pods.
fn privileged(image: &str, volume: &Path, namespaces: v1::NamespaceMode) -> v1::ContainerConfig {
    let mut config = spec::shell("main", image, "exec sleep 100000");
    let context = config.linux.as_mut().unwrap().security_context.as_mut().unwrap();
    context.privileged = true;
    let options = context.namespace_options.as_mut().unwrap();
    (options.pid, options.ipc, options.network) = all(namespaces);
    config.mounts.push(v1::Mount {
        container_path: "/volume".into(),
        host_path: volume.display().to_string(),
        ..Default::default()
    });
    config
}

fn all(mode: v1::NamespaceMode) -> (i32, i32, i32) {
    // A pod's own PIDs are asked for by container, as the kubelet does.
    let pid = if mode == v1::NamespaceMode::Node { mode } else { v1::NamespaceMode::Container };
    (pid.into(), mode.into(), mode.into())
}

/// Starts a privileged pod with these namespaces and its container; returns both.
async fn start(
    host: &Host,
    client: &mut Client,
    (name, image): (&str, &str),
    volume: &Path,
    namespaces: v1::NamespaceMode,
) -> (String, String) {
    let mut sandbox = spec::pod(name, host.dir());
    if namespaces == v1::NamespaceMode::Node {
        sandbox.hostname.clear();
    }
    let context = sandbox.linux.as_mut().unwrap().security_context.as_mut().unwrap();
    context.privileged = true;
    let options = context.namespace_options.as_mut().unwrap();
    (options.pid, options.ipc, options.network) = all(namespaces);
    let pod = client.run_pod(&sandbox).await.unwrap();
    let request = v1::CreateContainerRequest {
        pod_sandbox_id: pod.clone(),
        config: Some(privileged(image, volume, namespaces)),
        sandbox_config: Some(sandbox),
    };
    let container = client.runtime.create_container(request).await.unwrap().into_inner().container_id;
    client.start(&container).await.unwrap();
    (pod, container)
}

/// Makes the tries, and returns the aims reached.
async fn reached(client: &mut Client, container: &str, tries: &[Try]) -> Vec<&'static str> {
    let mut aims = Vec::new();
    for Try { aim, line, on_node } in tries {
        let answer = client.exec(container, &["sh", "-c", line], 60).await.unwrap();
        if on_node.as_ref().map_or(answer.exit_code == 0, |look| look()) {
            aims.push(*aim);
        }
    }
    aims
}

#[tokio::test]
async fn root_in_a_vm_reaches_neither_the_node_nor_another_tenant() {
    let Some((host, containerd)) = upstream::start("").await else { return };
    let mut client = host.client();
    let image = client.pull(&host.busybox()).await.unwrap();
    let other = client.run_pod(&spec::pod("other", host.dir())).await.unwrap();
    client.run(&other, spec::shell("main", &image, "exec sleep 100000")).await.unwrap();
    let info = client.pod_info(&other, "/vmm/pid").await.unwrap();
    let (secret, volume) = (host.dir().join("secret"), host.dir().join("volume"));
    std::fs::create_dir(&volume).unwrap();
    for path in [secret.as_path(), Path::new(SHARED_MEMORY)] {
        std::fs::write(path, SECRET).unwrap();
    }
    let address = client.pod_ip(&other).await.unwrap();
    let targets = Targets {
        secret,
        volume: volume.clone(),
        sockets: [host.daemon.socket().to_owned(), containerd.socket()],
        disk: host.dir().join("state/pods").join(&other).join("scratch.img"),
        netns: info["netns"].as_str().unwrap().into(),
        vmm: info["vmm"]["pid"].as_u64().unwrap(),
        bridge: host.network.bridge.clone(),
        registry: host.registry.addr.rsplit_once(':').unwrap().1.to_owned(),
        gateway: format!("{}.1", address.rsplit_once('.').unwrap().0),
    };
    assert!(targets.disk.exists(), "{}", targets.disk.display());
    let setting = std::fs::read_to_string(SETTING).unwrap();
    let mut pods = vec![other];

    for (name, namespaces) in [("runc", v1::NamespaceMode::Node), ("vm", v1::NamespaceMode::Pod)] {
        let (pod, container) = start(&host, &mut client, (name, &image), &volume, namespaces).await;
        let mut tries = targets.tries();
        tries.extend(targets.tries_seen_on_the_node(name));
        let aims = reached(&mut client, &container, &tries).await;
        std::fs::write(SETTING, &setting).unwrap();
        let all: Vec<_> = tries.iter().map(|one| one.aim).collect();
        let expected = if name == "vm" { Vec::new() } else { all };
        println!("tenants: {} of {} tries reach their aim in the pod {name}", aims.len(), tries.len());
        assert_eq!(aims, expected, "in the pod {name}");
        pods.push(pod);
    }

    std::fs::remove_file(SHARED_MEMORY).unwrap();
    for pod in pods {
        client.stop_pod(&pod).await.unwrap();
        client.remove_pod(&pod).await.unwrap();
    }
    host.stop().await.unwrap();
}
