//! The disk of the daemon's state when it is full, frozen or read-only: operations without writes go on,
//! removals work on a full disk, and afterwards everything works again without a restart.

use std::time::{Duration, Instant};

use proto_cri::v1::*;
use tests_e2e::client::Client;
use tests_e2e::disk::in_software_node;
use tests_e2e::traces::Traces;
use tests_e2e::wait::WITHIN;
use tests_e2e::{Host, numbered, spec};
use tonic::Status;

/// MiB of the disk: room for an image, and for a few pods' scratch disks.
const DISK_MIB: u64 = 256;
/// How long a disk stays frozen.
const FROZEN: Duration = Duration::from_secs(60);

/// A pod with a running container, and the values for the test.
struct Running {
    pod: String,
    container: String,
}

async fn run(host: &Host, name: &str, image: &str) -> Running {
    let mut client = host.client();
    let pod = client.run_pod(&spec::pod(name, host.dir())).await.unwrap();
    let counting = "n=0; while :; do n=$((n+1)); echo line $n; sleep 0.1; done";
    let container = client.run(&pod, spec::shell("main", image, counting)).await.unwrap();
    Running { pod, container }
}

/// Pulls an image without a pod.
async fn pull_unused(host: &Host) -> String {
    let layer = tests_registry::Layer::builder().file("data", 0o644, [7; 1 << 16].as_slice()).build();
    host.registry.push_image("e2e/unused", "1", vec![layer], serde_json::json!({})).await.unwrap();
    host.client().pull(&host.image("e2e/unused:1")).await.unwrap()
}

async fn remove_image(client: &mut Client, image: &str) -> Result<(), Status> {
    let image = Some(ImageSpec { image: image.into(), ..Default::default() });
    client.images.remove_image(RemoveImageRequest { image }).await.map(drop)
}

/// Makes each reading call, and a command in the pod.
async fn assert_answers(host: &Host, running: &Running) {
    let answers = async {
        let mut client = host.client();
        client.runtime.version(VersionRequest::default()).await.unwrap();
        client.runtime.status(StatusRequest { verbose: true }).await.unwrap();
        assert!(client.pods().await.unwrap().iter().any(|pod| pod.id == running.pod));
        let containers = client.runtime.list_containers(ListContainersRequest::default()).await.unwrap();
        assert!(containers.get_ref().containers.iter().any(|container| container.id == running.container));
        assert_eq!(client.pod_status(&running.pod).await.unwrap().state(), PodSandboxState::SandboxReady);
        assert_eq!(
            client.status(&running.container).await.unwrap().state(),
            ContainerState::ContainerRunning
        );
        let one = ContainerStatsRequest { container_id: running.container.clone() };
        assert!(client.runtime.container_stats(one).await.unwrap().into_inner().stats.is_some());
        client.runtime.list_container_stats(ListContainerStatsRequest::default()).await.unwrap();
        client.runtime.list_pod_sandbox_stats(ListPodSandboxStatsRequest::default()).await.unwrap();
        client.images.list_images(ListImagesRequest::default()).await.unwrap();
        assert_eq!(client.sh(&running.container, "echo here").await.unwrap(), "here\n");
    };
    tokio::time::timeout(WITHIN, answers).await.expect("every call answers");
}

/// Every call works, for the existing pod and for a new one; and nothing is left behind.
async fn assert_all_works(host: &Host, running: Running, before: &Traces) {
    let mut client = host.client();
    let image = client.pull(&host.busybox()).await.unwrap();
    let new = run(host, "afterwards", &image).await;
    assert_answers(host, &new).await;
    for Running { pod, container } in [running, new] {
        let log = client.status(&container).await.unwrap().log_path;
        client.stop(&container, 0).await.unwrap();
        assert!(numbered::lines(&std::fs::read_to_string(log).unwrap(), 1).unwrap().count > 0);
        client.remove(&container).await.unwrap();
        client.stop_pod(&pod).await.unwrap();
        client.remove_pod(&pod).await.unwrap();
    }
    let image = pull_unused(host).await;
    remove_image(&mut client, &image).await.unwrap();
    assert!(client.pods().await.unwrap().is_empty());
    assert_eq!(host.left_since(before).await, Vec::<String>::new());
}

#[tokio::test]
async fn a_full_state_disk_is_freed_by_removals_and_everything_works_again() {
    let Some(host) = Host::start_on_disk(DISK_MIB).await else { return };
    let before = Traces::take(host.dir()).unwrap();
    let mut client = host.client();
    let image = client.pull(&host.busybox()).await.unwrap();
    let unused = pull_unused(&host).await;
    let (kept, removed) = (run(&host, "kept", &image).await, run(&host, "removed", &image).await);
    host.disk().fill().unwrap();
    assert_answers(&host, &kept).await;
    let error = client.run_pod(&spec::pod("late", host.dir())).await.unwrap_err();
    assert!(
        error.message().to_lowercase().contains("no space left") || error.message().contains("full"),
        "{error}"
    );
    client.stop(&removed.container, 0).await.unwrap();
    assert_eq!(client.status(&removed.container).await.unwrap().state(), ContainerState::ContainerExited);
    client.stop_pod(&removed.pod).await.unwrap();
    client.remove_pod(&removed.pod).await.unwrap();
    remove_image(&mut client, &unused).await.unwrap();
    assert_eq!(client.pods().await.unwrap().len(), 1);
    assert_answers(&host, &kept).await;
    // The removals freed space; fill it again, so the restarted daemon sees the end of a full disk, too.
    host.disk().fill().unwrap();
    client.run_pod(&spec::pod("later", host.dir())).await.unwrap_err();
    host.disk().free().unwrap();
    assert_all_works(&host, kept, &before).await;
    host.stop().await.unwrap();
}

#[tokio::test]
async fn a_frozen_state_disk_holds_up_only_what_writes_to_it() {
    let Some(host) = Host::start_on_disk(DISK_MIB).await else { return };
    let before = Traces::take(host.dir()).unwrap();
    let mut client = host.client();
    let image = client.pull(&host.busybox()).await.unwrap();
    let unused = pull_unused(&host).await;
    let (kept, removed) = (run(&host, "kept", &image).await, run(&host, "removed", &image).await);
    host.disk().freeze().unwrap();
    let begun = Instant::now();
    // Writing calls: they wait for the disk, and block nothing else.
    let writing = {
        let (mut first, mut second, mut third) = (host.client(), host.client(), host.client());
        let (pod, new) = (removed.pod.clone(), spec::pod("meanwhile", host.dir()));
        (
            tokio::spawn(async move { first.stop_pod(&pod).await }),
            tokio::spawn(async move { second.run_pod(&new).await }),
            tokio::spawn(async move { remove_image(&mut third, &unused).await }),
        )
    };
    let mut rounds = 0;
    while begun.elapsed() < FROZEN {
        assert_answers(&host, &kept).await;
        rounds += 1;
    }
    host.disk().thaw().unwrap();
    println!("frozen for {:?}: {rounds} rounds of 11 calls answered", begun.elapsed());
    // They end. Those given up meanwhile are repeated, like a kubelet's.
    let (stopped, started, image_removed) = writing;
    println!("stop: {:?}; image: {:?}", stopped.await.unwrap(), image_removed.await.unwrap());
    if let Err(error) = started.await.unwrap() {
        println!("start: {error}");
    }
    client.remove_pod(&removed.pod).await.unwrap();
    for pod in client.pods().await.unwrap().iter().filter(|pod| pod.id != kept.pod) {
        client.remove_pod(&pod.id).await.unwrap();
    }
    assert_all_works(&host, kept, &before).await;
    host.stop().await.unwrap();
}

#[tokio::test]
async fn a_state_disk_that_became_read_only_serves_what_is_there() {
    if !in_software_node() {
        eprintln!("skipped: only the software node's disks may become read-only");
        return;
    }
    let Some(host) = Host::start_on_disk(DISK_MIB).await else { return };
    let before = Traces::take(host.dir()).unwrap();
    let mut client = host.client();
    let image = client.pull(&host.busybox()).await.unwrap();
    let (kept, removed) = (run(&host, "kept", &image).await, run(&host, "removed", &image).await);
    host.disk().make_read_only().await.unwrap();
    assert_answers(&host, &kept).await;
    let error = client.run_pod(&spec::pod("late", host.dir())).await.unwrap_err();
    assert!(error.message().to_lowercase().contains("read-only"), "{error}");
    let removal = client.remove_pod(&removed.pod).await;
    println!("a pod's removal: {removal:?}");
    assert_answers(&host, &kept).await;
    host.disk().make_writable().unwrap();
    client.remove_pod(&removed.pod).await.unwrap();
    assert_all_works(&host, kept, &before).await;
    host.stop().await.unwrap();
}
