//! A pod's and a container's life, and repeated requests for each step.

use proto_cri::v1;
use tests_e2e::traces::Traces;
use tests_e2e::{Host, spec};
use tonic::Code;

#[tokio::test]
async fn a_pod_lives_from_run_to_removal_and_leaves_nothing() {
    let Some(host) = Host::start().await else { return };
    let before = Traces::take(host.dir()).unwrap();
    let mut client = host.client();
    let image = client.pull(&host.busybox()).await.unwrap();
    let pod = client.run_pod(&spec::pod("life", host.dir())).await.unwrap();
    assert_eq!(client.pod_status(&pod).await.unwrap().state(), v1::PodSandboxState::SandboxReady);

    let container = client.create(&pod, spec::container("main", &image, &["sleep", "3600"])).await.unwrap();
    assert_eq!(client.status(&container).await.unwrap().state(), v1::ContainerState::ContainerCreated);
    client.start(&container).await.unwrap();
    let status = client.status(&container).await.unwrap();
    assert_eq!(status.state(), v1::ContainerState::ContainerRunning);
    assert!(status.started_at >= status.created_at && status.created_at > 0);

    client.stop(&container, 0).await.unwrap();
    let status = client.status(&container).await.unwrap();
    assert_eq!((status.state(), status.exit_code), (v1::ContainerState::ContainerExited, 137));
    assert!(status.finished_at >= status.started_at);
    client.remove(&container).await.unwrap();
    assert_eq!(client.status(&container).await.unwrap_err().code(), Code::NotFound);

    client.stop_pod(&pod).await.unwrap();
    assert_eq!(client.pod_status(&pod).await.unwrap().state(), v1::PodSandboxState::SandboxNotready);
    client.remove_pod(&pod).await.unwrap();
    assert_eq!(client.pod_status(&pod).await.unwrap_err().code(), Code::NotFound);
    assert_eq!(host.left_since(&before).await, Vec::<String>::new());
    host.stop().await.unwrap();
}

#[tokio::test]
async fn stopping_and_removing_twice_is_no_error() {
    let Some(host) = Host::start().await else { return };
    let mut client = host.client();
    let image = client.pull(&host.busybox()).await.unwrap();
    let pod = client.run_pod(&spec::pod("twice", host.dir())).await.unwrap();
    let container = client.run(&pod, spec::container("main", &image, &["sleep", "3600"])).await.unwrap();
    client.stop(&container, 0).await.unwrap();
    client.stop(&container, 0).await.unwrap();
    client.remove(&container).await.unwrap();
    client.remove(&container).await.unwrap();
    client.stop_pod(&pod).await.unwrap();
    client.stop_pod(&pod).await.unwrap();
    client.remove_pod(&pod).await.unwrap();
    client.remove_pod(&pod).await.unwrap();
    host.stop().await.unwrap();
}

#[tokio::test]
async fn the_same_run_twice_at_once_is_one_pod() {
    let Some(host) = Host::start().await else { return };
    let config = spec::pod("joined", host.dir());
    let (mut one, mut other) = (host.client(), host.client());
    let (first, second) = tokio::join!(one.run_pod(&config), other.run_pod(&config));
    assert_eq!(first.unwrap(), second.unwrap());
    assert_eq!(one.pods().await.unwrap().len(), 1);
    let pod = one.pods().await.unwrap().remove(0).id;
    one.remove_pod(&pod).await.unwrap();
    host.stop().await.unwrap();
}

#[tokio::test]
async fn removing_a_pod_takes_its_running_containers_along() {
    let Some(host) = Host::start().await else { return };
    let before = Traces::take(host.dir()).unwrap();
    let mut client = host.client();
    let image = client.pull(&host.busybox()).await.unwrap();
    let pod = client.run_pod(&spec::pod("forced", host.dir())).await.unwrap();
    let container = client.run(&pod, spec::container("main", &image, &["sleep", "3600"])).await.unwrap();
    client.remove_pod(&pod).await.unwrap();
    assert_eq!(client.status(&container).await.unwrap_err().code(), Code::NotFound);
    assert_eq!(host.left_since(&before).await, Vec::<String>::new());
    host.stop().await.unwrap();
}

#[tokio::test]
async fn a_killed_daemon_finds_its_pod_again() {
    let Some(mut host) = Host::start().await else { return };
    let before = Traces::take(host.dir()).unwrap();
    let mut client = host.client();
    let image = client.pull(&host.busybox()).await.unwrap();
    let pod = client.run_pod(&spec::pod("survivor", host.dir())).await.unwrap();
    let container = client.run(&pod, spec::container("main", &image, &["sleep", "3600"])).await.unwrap();
    host.daemon.kill_and_restart().await.unwrap();
    let mut client = host.client();
    assert_eq!(client.pod_status(&pod).await.unwrap().state(), v1::PodSandboxState::SandboxReady);
    assert_eq!(client.status(&container).await.unwrap().state(), v1::ContainerState::ContainerRunning);
    assert_eq!(client.sh(&container, "echo still here").await.unwrap(), "still here\n");
    client.remove_pod(&pod).await.unwrap();
    assert_eq!(host.left_since(&before).await, Vec::<String>::new());
    host.stop().await.unwrap();
}
