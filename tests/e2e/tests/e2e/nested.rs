//! Containers managing their own processes: their own cgroup, an init system, another container runtime.

use proto_cri::v1;
use serde_json::json;
use tests_e2e::client::Client;
use tests_e2e::kubelet_volumes::{KubeletVolumes, mounted};
use tests_e2e::wait::{WITHIN, until, within};
use tests_e2e::{Host, spec};
use tests_registry::installed_layer;

/// Hands controllers down as an init system does: first all processes leave the container's own cgroup.
const HANDS_DOWN: &str = "mkdir /sys/fs/cgroup/init && echo 0 >/sys/fs/cgroup/init/cgroup.procs && \
                          echo '+memory +pids' >/sys/fs/cgroup/cgroup.subtree_control && \
                          mkdir /sys/fs/cgroup/work && touch /flags/ready; exec sleep 100000";

/// A directory for a container's flag: it has delegated its controllers. An earlier command would be in the
/// way.
struct Flags(tempfile::TempDir);

impl Flags {
    fn new() -> Flags {
        Flags(tempfile::Builder::new().prefix("flags-").tempdir().unwrap())
    }

    async fn wait(&self) {
        until("the container to say that it is ready", async || self.0.path().join("ready").exists()).await;
    }
}

#[tokio::test]
async fn a_command_runs_in_a_container_that_hands_controllers_down() {
    let Some(host) = Host::start().await else { return };
    let mut client = host.client();
    let image = client.pull(&host.busybox()).await.unwrap();
    let pod = client.run_pod(&spec::privileged_pod("hands-down", host.dir())).await.unwrap();
    let flags = Flags::new();
    let mut config = spec::privileged(spec::shell("init", &image, HANDS_DOWN));
    config.mounts = vec![mounted(flags.0.path(), "/flags")];
    let container = client.run(&pod, config).await.unwrap();
    flags.wait().await;
    let line = "cat /proc/self/cgroup; \
                echo 0 >/sys/fs/cgroup/work/cgroup.procs && cat /proc/self/cgroup";
    assert_eq!(client.sh(&container, line).await.unwrap(), "0::/init\n0::/work\n");
    // Once more, and with the remaining cgroups below.
    assert_eq!(client.sh(&container, "cat /proc/self/cgroup").await.unwrap(), "0::/init\n");
    client.stop(&container, 0).await.unwrap();
    client.remove_pod(&pod).await.unwrap();
    host.stop().await.unwrap();
}

/// A container runtime and its programs, from Debian's packages.
const DOCKER: [&str; 5] = [
    "/usr/sbin/dockerd",
    "/usr/bin/docker",
    "/usr/bin/containerd",
    "/usr/bin/containerd-shim-runc-v2",
    "/usr/sbin/runc",
];

/// Starts dockerd like its own image: all processes leave the cgroup before it delegates controllers. It
/// gives its containerd 15 s, and a loaded node may need more, so it is started again.
const DOCKERD: &str = "cd /sys/fs/cgroup && mkdir init && echo 0 >init/cgroup.procs && \
                       sed 's/ / +/g; s/^/+/' cgroup.controllers >cgroup.subtree_control && touch /flags/ready && \
                       while ! dockerd --storage-driver overlay2 --iptables=false --bridge=none >>/tmp/dockerd.log 2>&1; \
                       do :; done";

/// Makes an image of the container's own busybox.
const DOCKER_IMPORTS: &str =
    "tar -c -C / bin | docker import - box >/dev/null && docker info -f '{{.Driver}} {{.CgroupVersion}}'";

/// Runs a container with a limit, writing to its root.
const DOCKER_RUNS: &str = "docker run --rm --network none -m 32m box /bin/sh -c \
                           'echo inside >/file; rm /bin/vi; cat /file /sys/fs/cgroup/memory.max'";

/// Waits until the runtime in the container answers.
async fn until_docker_answers(client: &mut Client, container: &str) {
    let up = within(WITHIN, async || {
        let line = "docker info >/dev/null || { sleep 1; false; }";
        let answered = client.exec(container, &["sh", "-c", line], 600).await.unwrap();
        if answered.exit_code == 0 { Ok(()) } else { Err(answered) }
    });
    if let Err(answered) = up.await {
        let log = client.sh(container, "tail -n 40 /tmp/dockerd.log").await.unwrap();
        panic!("waited {} s for dockerd: {answered:?}\n{log}", WITHIN.as_secs());
    }
}

#[tokio::test]
async fn another_container_runtime_runs_in_a_pod_with_overlays_on_its_volume() {
    let Some(host) = Host::start().await else { return };
    let mut client = host.client();
    let (mut layers, config) = tests_registry::busybox_image().unwrap();
    layers.push(installed_layer(&DOCKER).unwrap());
    host.registry.push_image("tests/docker", "1", layers, config).await.unwrap();
    let image = client.pull(&host.image("tests/docker:1")).await.unwrap();
    let pod_config = spec::privileged_pod("docker", host.dir());
    let mut volumes = KubeletVolumes::of(&pod_config).unwrap();
    let data = volumes.disk("data", 0o711, 0).unwrap();
    let pod = client.run_pod(&pod_config).await.unwrap();
    let mut config = spec::privileged(spec::shell("docker", &image, DOCKERD));
    let flags = Flags::new();
    config.mounts = vec![mounted(&data, "/var/lib/docker"), mounted(flags.0.path(), "/flags")];
    config.linux.get_or_insert_default().resources =
        Some(v1::LinuxContainerResources { memory_limit_in_bytes: 512 << 20, ..Default::default() });
    let container = client.run(&pod, config).await.unwrap();
    flags.wait().await;
    until_docker_answers(&mut client, &container).await;
    assert_eq!(client.sh(&container, DOCKER_IMPORTS).await.unwrap(), "overlay2 2\n");
    assert_eq!(client.sh(&container, DOCKER_RUNS).await.unwrap(), "inside\n33554432\n");
    client.stop(&container, 10).await.unwrap();
    client.remove_pod(&pod).await.unwrap();
    host.stop().await.unwrap();
}

/// An init system's own files; its libraries come with them.
const INIT_SYSTEM: [&str; 17] = [
    "/lib/systemd/systemd",
    "/lib/systemd/systemd-journald",
    "/lib/systemd/systemd-shutdown",
    "/bin/systemctl",
    "/bin/journalctl",
    "/bin/systemd-tmpfiles",
    "/lib/systemd/system/basic.target",
    "/lib/systemd/system/final.target",
    "/lib/systemd/system/halt.target",
    "/lib/systemd/system/multi-user.target",
    "/lib/systemd/system/shutdown.target",
    "/lib/systemd/system/sysinit.target",
    "/lib/systemd/system/systemd-halt.service",
    "/lib/systemd/system/systemd-journald.service",
    "/lib/systemd/system/systemd-journald.socket",
    "/lib/systemd/system/systemd-journald-dev-log.socket",
    "/lib/systemd/system/umount.target",
];

const SERVICE: &str = "[Unit]\nDescription=A service\n[Service]\nExecStart=/bin/sh -c 'echo started; touch /flags/ready; exec sleep 100000'\n\
                       Restart=always\nMemoryMax=16M\n[Install]\nWantedBy=multi-user.target\n";

/// The init system is up, its service runs in its own cgroup with a limit, and is restarted after a kill.
const LOOKS: &str = "until systemctl is-active hello.service >/dev/null 2>&1; do sleep 0.5; done; \
                     pid=$(systemctl show -P MainPID hello.service); cat /proc/$pid/cgroup; \
                     cat /sys/fs/cgroup/system.slice/hello.service/memory.max; kill -9 $pid; \
                     until new=$(systemctl show -P MainPID hello.service) && [ $new != $pid ] && [ $new != 0 ]; do sleep 0.5; done; \
                     cat /proc/1/comm; until journalctl -u hello.service | grep -c started | grep -q 2; do sleep 0.5; done; echo logged";

#[tokio::test]
async fn an_init_system_runs_as_a_containers_first_process_and_shuts_down_when_it_is_stopped() {
    let Some(host) = Host::start().await else { return };
    let mut client = host.client();
    let (mut layers, _) = tests_registry::busybox_image().unwrap();
    layers.push(installed_layer(&INIT_SYSTEM).unwrap());
    let [late, early] =
        ["multi-user", "sysinit"].map(|target| format!("etc/systemd/system/{target}.target.wants"));
    let mut own = tests_registry::Layer::builder();
    for directory in ["etc/systemd", "etc/systemd/system", &late, &early, "var/log/journal"] {
        own = own.dir(directory, 0o755);
    }
    let journal = "systemd-journald.service";
    own = own.symlink(&format!("{early}/{journal}"), &format!("/lib/systemd/system/{journal}"));
    own = own.file("etc/systemd/system/hello.service", 0o644, SERVICE).file("etc/machine-id", 0o644, "");
    own = own.symlink(&format!("{late}/hello.service"), "../hello.service");
    own = own.symlink("etc/systemd/system/default.target", "/lib/systemd/system/multi-user.target");
    layers.push(own.build());
    let config =
        json!({ "StopSignal": "SIGRTMIN+3", "Env": ["PATH=/usr/sbin:/usr/bin:/sbin:/bin", "container=oci"] });
    host.registry.push_image("tests/init", "1", layers, config).await.unwrap();
    let image = client.pull(&host.image("tests/init:1")).await.unwrap();
    let pod = client.run_pod(&spec::privileged_pod("init", host.dir())).await.unwrap();
    let flags = Flags::new();
    let mut config = spec::privileged(spec::container("init", &image, &["/lib/systemd/systemd"]));
    config.mounts = vec![mounted(flags.0.path(), "/flags")];
    let container = client.run(&pod, config).await.unwrap();
    flags.wait().await;
    let seen = client.sh(&container, LOOKS).await.unwrap();
    assert_eq!(seen, "0::/system.slice/hello.service\n16777216\nsystemd\nlogged\n");
    client.stop(&container, 600).await.unwrap();
    let status = client.status(&container).await.unwrap();
    assert_ne!(status.exit_code, 137, "it ended by itself");
    client.remove_pod(&pod).await.unwrap();
    host.stop().await.unwrap();
}
