//! An upgrade of the node: this release manages the previous release's pods.

use proto_cri::v1::*;
use tests_e2e::built::Built;
use tests_e2e::traces::Traces;
use tests_e2e::{Host, numbered, spec};
use tokio::process::Command;

use crate::installation::outdated;

#[tokio::test]
async fn pods_of_the_release_before_are_found_used_and_removed() {
    let (Some(previous), Some(built)) = (Built::previous_of_environment(), Built::of_environment()) else {
        return;
    };
    let mut host = Host::with(&previous).await.unwrap();
    let before = Traces::take(host.dir()).unwrap();
    let mut client = host.client();
    let image = client.pull(&host.busybox()).await.unwrap();
    let pod = client.run_pod(&spec::pod("old", host.dir())).await.unwrap();
    let counting = "n=0; while :; do n=$((n+1)); echo line $n; sleep 0.05; done";
    let running = client.run(&pod, spec::shell("running", &image, counting)).await.unwrap();
    let created = client.create(&pod, spec::container("created", &image, &["sleep", "3600"])).await.unwrap();
    let ended = client.run(&pod, spec::shell("ended", &image, "exit 3")).await.unwrap();
    let ended_before = client.wait(&ended).await.unwrap();
    let (running_before, pod_before) =
        (client.status(&running).await.unwrap(), client.pod_status(&pod).await.unwrap());

    host.upgrade(&built).await.unwrap();

    let mut client = host.client();
    // The previous release did not record the VM's builds.
    let unknown = serde_json::json!({ "vmm": null, "kernel": null, "agent": null });
    assert_eq!(client.pod_status_verbose(&pod).await.unwrap().1["versions"], unknown);
    let versions = outdated(&host, &["e2e/old"]).await;
    assert_eq!(versions["outdated"][0]["parts"], serde_json::json!(["vmm", "kernel", "agent"]));
    let mut check = Command::new(host.daemon.binary());
    check.arg("--config").arg(host.daemon.config()).arg("check");
    let check = check.output().await.unwrap();
    let said = String::from_utf8_lossy(&check.stdout);
    let noted = said.lines().find(|line| line.contains("pod e2e/old (")).unwrap_or_else(|| panic!("{said}"));
    assert!(noted.starts_with("note  ") && noted.contains("vmm, kernel, agent"), "{noted}");
    assert!(check.status.success(), "outdated pods are no failure: {said}");
    assert_eq!(client.sh(&running, "echo here").await.unwrap(), "here\n");
    assert_eq!(client.status(&running).await.unwrap(), running_before);
    assert_eq!(client.status(&ended).await.unwrap(), ended_before);
    assert_eq!(client.status(&created).await.unwrap().state(), ContainerState::ContainerCreated);
    assert_eq!(client.pod_status(&pod).await.unwrap().network, pod_before.network);
    // Every call of a kubelet for an existing pod.
    client.start(&created).await.unwrap();
    let new = client.run(&pod, spec::shell("new", &image, "echo new; exit 4")).await.unwrap();
    assert_eq!(client.wait(&new).await.unwrap().exit_code, 4);
    let one = ContainerStatsRequest { container_id: running.clone() };
    assert!(client.runtime.container_stats(one).await.unwrap().into_inner().stats.is_some());
    let log = client.status(&running).await.unwrap().log_path;
    client.stop(&running, 0).await.unwrap();
    assert_eq!(numbered::lines(&std::fs::read_to_string(log).unwrap(), 1).unwrap().again, 0);
    for container in [&running, &created, &ended] {
        client.remove(container).await.unwrap();
    }
    client.stop_pod(&pod).await.unwrap();
    client.remove_pod(&pod).await.unwrap();
    let fresh = client.run_pod(&spec::pod("fresh", host.dir())).await.unwrap();
    let versions = client.pod_status_verbose(&fresh).await.unwrap().1["versions"].clone();
    for part in ["vmm", "kernel", "agent"] {
        assert_eq!(versions[part]["installed"], true, "{versions}");
        assert_ne!(versions[part]["release"], "", "{versions}");
    }
    outdated(&host, &[]).await;
    client.run(&fresh, spec::container("main", &image, &["sleep", "3600"])).await.unwrap();
    client.remove_pod(&fresh).await.unwrap();
    assert_eq!(host.left_since(&before).await, Vec::<String>::new());
    host.stop().await.unwrap();
}
