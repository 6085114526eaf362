//! Containers that manage processes of their own: a cgroup of theirs, an init system, another container runtime.

use proto_cri::v1;
use tests_e2e::{Host, spec};

/// Hands controllers down as an init system does: first all processes leave the container's own cgroup.
const HANDS_DOWN: &str = "mkdir /sys/fs/cgroup/init && echo 0 >/sys/fs/cgroup/init/cgroup.procs && \
                          echo '+memory +pids' >/sys/fs/cgroup/cgroup.subtree_control && \
                          mkdir /sys/fs/cgroup/work && touch /ready; exec sleep 100000";

/// Makes a container privileged, in a pod that allows it.
fn privileged(mut config: v1::ContainerConfig) -> v1::ContainerConfig {
    let security = config.linux.get_or_insert_default().security_context.get_or_insert_default();
    security.privileged = true;
    config
}

fn privileged_pod(name: &str, host: &Host) -> v1::PodSandboxConfig {
    let mut config = spec::pod(name, host.dir());
    config.linux.get_or_insert_default().security_context.get_or_insert_default().privileged = true;
    config
}

#[tokio::test]
async fn a_command_runs_in_a_container_that_hands_controllers_down() {
    let Some(host) = Host::start().await else { return };
    let mut client = host.client();
    let image = client.pull(&host.busybox()).await.unwrap();
    let pod = client.run_pod(&privileged_pod("hands-down", &host)).await.unwrap();
    let container = client.run(&pod, privileged(spec::shell("init", &image, HANDS_DOWN))).await.unwrap();
    let line = "until [ -e /ready ]; do sleep 0.1; done; cat /proc/self/cgroup; \
                echo 0 >/sys/fs/cgroup/work/cgroup.procs && cat /proc/self/cgroup";
    assert_eq!(client.sh(&container, line).await.unwrap(), "0::/init\n0::/work\n");
    // Once more, and with what is left below.
    assert_eq!(client.sh(&container, "cat /proc/self/cgroup").await.unwrap(), "0::/init\n");
    client.stop(&container, 0).await.unwrap();
    client.remove_pod(&pod).await.unwrap();
    host.stop().await.unwrap();
}
