//! Pods see nothing of each other.

use tests_e2e::wait::until_seen;
use tests_e2e::{Host, spec};

#[tokio::test]
async fn two_pods_see_neither_each_others_processes_nor_files() {
    let Some(host) = Host::start().await else { return };
    let mut client = host.client();
    let image = client.pull(&host.busybox()).await.unwrap();
    let mut containers = Vec::new();
    for name in ["left", "right"] {
        let pod = client.run_pod(&spec::pod(name, host.dir())).await.unwrap();
        let line = format!("echo secret > /tmp/{name}; exec sleep 4{}", name.len());
        containers.push((pod.clone(), client.run(&pod, spec::shell("main", &image, &line)).await.unwrap()));
    }
    let (left, right) = (containers[0].1.clone(), containers[1].1.clone());
    for (container, sleep) in [(&left, "sleep 44"), (&right, "sleep 45")] {
        until_seen(format!("{sleep:?} in its container"), async || {
            let processes = client.sh(container, "ps").await.unwrap();
            if processes.contains(sleep) { Ok(()) } else { Err(processes) }
        })
        .await;
    }
    assert_eq!(client.sh(&left, "ls /tmp").await.unwrap(), "left\n");
    assert_eq!(client.sh(&right, "ls /tmp").await.unwrap(), "right\n");
    let processes = client.sh(&left, "ps").await.unwrap();
    assert!(!processes.contains("sleep 45"), "{processes}");
    // Not even their kernels are one: each has its own boot id.
    let boot_id = "cat /proc/sys/kernel/random/boot_id";
    assert_ne!(client.sh(&left, boot_id).await.unwrap(), client.sh(&right, boot_id).await.unwrap());
    for (pod, _) in containers {
        client.remove_pod(&pod).await.unwrap();
    }
    host.stop().await.unwrap();
}

#[tokio::test]
async fn containers_of_one_pod_share_its_network_and_not_their_files() {
    let Some(host) = Host::start().await else { return };
    let mut client = host.client();
    let image = client.pull(&host.busybox()).await.unwrap();
    let pod = client.run_pod(&spec::pod("shared", host.dir())).await.unwrap();
    let one =
        client.run(&pod, spec::shell("one", &image, "echo 1 > /tmp/one; exec sleep 3600")).await.unwrap();
    let two = client.run(&pod, spec::container("two", &image, &["sleep", "3600"])).await.unwrap();
    client.prints(&one, "ls /tmp", "one\n").await.unwrap();
    assert_eq!(client.sh(&two, "ls /tmp").await.unwrap(), "");
    let address = "ip -o -4 addr show eth0 | awk '{print $4}'";
    let expected = client.pod_ip(&pod).await.unwrap();
    assert!(client.sh(&one, address).await.unwrap().starts_with(&expected));
    assert!(client.sh(&two, address).await.unwrap().starts_with(&expected));
    assert_eq!(client.sh(&one, "hostname").await.unwrap(), "shared\n");
    client.remove_pod(&pod).await.unwrap();
    host.stop().await.unwrap();
}
