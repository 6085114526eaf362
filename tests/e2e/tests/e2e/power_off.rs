//! The node goes down without a drain, from the view of a daemon alone: systemd says so, and sends SIGTERM.

use proto_cri::v1;
use tests_e2e::kubelet_volumes::{KubeletVolumes, mounted};
use tests_e2e::wait::until;
use tests_e2e::{Host, spec};

/// The output of systemctl during a shutdown.
const GOING_DOWN: &str = "case $1 in is-system-running) echo stopping; exit 1 ;; show) echo 2min ;; esac";
/// And while running.
const RUNNING: &str = "case $1 in is-system-running) echo running ;; esac";

/// Writes to its volume at SIGTERM, and leaves the data in its kernel's memory.
const PROGRAM: &str =
    "trap 'echo ended >/data/end; exit 7' TERM; echo begun >/data/begun; while :; do sleep 0.1; done";

#[tokio::test]
async fn containers_end_in_order_with_the_node_and_their_disks_have_all_that_they_wrote() {
    let Some(mut host) = Host::start().await else { return };
    let mut client = host.client();
    let image = client.pull(&host.busybox()).await.unwrap();
    let config = spec::pod("down", host.dir());
    let mut volumes = KubeletVolumes::of(&config).unwrap();
    let directory = volumes.disk("data", 0o777, 0).unwrap();
    let with_volume = |container: v1::ContainerConfig| {
        let mounts = vec![mounted(&directory, "/data")];
        v1::ContainerConfig { mounts, ..container }
    };
    let pod = client.run_pod(&config).await.unwrap();
    let container = client.run(&pod, with_volume(spec::shell("main", &image, PROGRAM))).await.unwrap();
    until("the program to begin", async || {
        client.sh(&container, "cat /data/begun").await.is_ok_and(|said| said == "begun\n")
    })
    .await;

    // A restarted daemon leaves its pods alone.
    host.daemon.put_before_program("systemctl", RUNNING).unwrap();
    host.daemon.stop().await.unwrap();
    host.daemon.kill_and_restart().await.unwrap();
    let mut client = host.client();
    assert_eq!(client.status(&container).await.unwrap().state(), v1::ContainerState::ContainerRunning);

    host.daemon.put_before_program("systemctl", GOING_DOWN).unwrap();
    host.daemon.stop().await.unwrap();
    assert!(host.daemon.log().contains("stopped, with all pods"));

    host.daemon.put_before_program("systemctl", RUNNING).unwrap();
    host.daemon.kill_and_restart().await.unwrap();
    let mut client = host.client();
    assert_eq!(client.pod_status(&pod).await.unwrap().state(), v1::PodSandboxState::SandboxNotready);
    let status = client.status(&container).await.unwrap();
    assert_eq!((status.state(), status.exit_code), (v1::ContainerState::ContainerExited, 7));
    client.stop_pod(&pod).await.unwrap();

    let mut next = config.clone();
    next.metadata.get_or_insert_default().attempt += 1;
    let pod = client.run_pod(&next).await.unwrap();
    let sleeper = spec::container("main", &image, &["sleep", "100000"]);
    let container = client.run(&pod, with_volume(sleeper)).await.unwrap();
    assert_eq!(client.sh(&container, "cat /data/end").await.unwrap(), "ended\n");
    for pod in client.pods().await.unwrap() {
        client.remove_pod(&pod.id).await.unwrap();
    }
    drop(volumes);
    host.stop().await.unwrap();
}
