//! The process beside a VMM that serves the pod's volumes.

use std::fs;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tests_e2e::client::Client;
use tests_e2e::{Host, spec};

/// The VMM of a pod, and its share.
async fn processes(client: &mut Client, pod: &str) -> [Pid; 2] {
    [client.vmm(pod).await.unwrap(), client.share(pod).await.unwrap()]
}

fn of(process: Pid, file: &str) -> String {
    fs::read_to_string(format!("/proc/{process}/{file}")).unwrap()
}

#[tokio::test]
async fn a_share_is_accounted_with_its_vmm_and_its_death_ends_the_pod_with_a_reason() {
    let Some(host) = Host::start().await else { return };
    let mut client = host.client();
    let image = client.pull(&host.busybox()).await.unwrap();
    let pod = client.run_pod(&spec::pod("shares", host.dir())).await.unwrap();
    let mut sleeper = spec::container("sleeper", &image, &["sleep", "3600"]);
    let linux = sleeper.linux.get_or_insert_default();
    linux.resources.get_or_insert_default().oom_score_adj = 917;
    let sleeper = client.run(&pod, sleeper).await.unwrap();
    let [vmm, share] = processes(&mut client, &pod).await;
    assert_eq!(of(share, "comm"), "podvisor-share\n");
    for file in ["cgroup", "oom_score_adj"] {
        assert_eq!(of(vmm, file), of(share, file));
    }
    assert_eq!(of(share, "oom_score_adj"), "917\n");
    let ids = |process| {
        let status = of(process, "status");
        status
            .lines()
            .find(|line| line.starts_with("Uid:"))
            .unwrap()
            .split_whitespace()
            .nth(1)
            .unwrap()
            .to_owned()
    };
    assert!(ids(share) == "0" && ids(vmm) != "0");

    kill(share, Signal::SIGKILL).unwrap();
    let status = client.wait(&sleeper).await.unwrap();
    assert!(status.message.contains("the share of the pod's volumes was lost"), "{status:?}");
    client.remove_pod(&pod).await.unwrap();

    // However the VMM ends, nothing is left.
    let pod = client.run_pod(&spec::pod("shares", host.dir())).await.unwrap();
    let [vmm, share] = processes(&mut client, &pod).await;
    kill(vmm, Signal::SIGKILL).unwrap();
    client.remove_pod(&pod).await.unwrap();
    assert!(fs::read_to_string(format!("/proc/{share}/stat")).is_err());
    host.stop().await.unwrap();
}
