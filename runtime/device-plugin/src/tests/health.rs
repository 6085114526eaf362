//! Lists of the usable devices, as received by the kubelet.

use std::time::Duration;

use super::kubelet::{Kubelet, Manner};
use super::node::{Node, VM_BYTES, not_soon};
use super::pod_resources::Pods;

const ALL: [&str; 4] = ["vm-0", "vm-1", "vm-2", "vm-3"];

#[tokio::test]
async fn without_kvm_every_device_is_unhealthy_until_it_is_back() {
    let node = Node::with_plugin();
    let mut kubelet = Kubelet::start(&node.directory(), Manner::Takes);
    kubelet.list_with_healthy(&ALL).await;
    node.hardware.set_broken("/dev/kvm: No such file or directory");
    assert_eq!(kubelet.list().await.unwrap()[3], ("vm-3".to_owned(), "Unhealthy".to_owned()));
    node.hardware.set_available(64 << 30);
    kubelet.list_with_healthy(&ALL).await;
    // A list is sent for a change alone, however often the node is looked at.
    assert!(not_soon(kubelet.list()).await);
}

#[tokio::test]
async fn a_node_that_cannot_run_vms_says_so_in_its_first_list() {
    let mut node = Node::new();
    node.hardware.set_broken("/dev/kvm: No such file or directory");
    node.start();
    let mut kubelet = Kubelet::start(&node.directory(), Manner::Takes);
    let first = kubelet.list().await.unwrap();
    assert!(first.len() == 4 && first.iter().all(|(_, health)| health == "Unhealthy"), "{first:?}");
}

#[tokio::test]
async fn while_memory_is_short_the_devices_that_pods_hold_stay_healthy() {
    let node = Node::with_plugin();
    let mut kubelet = Kubelet::start(&node.directory(), Manner::Takes);
    let pods = Pods::serve(&node.pod_resources());
    // The last is of an earlier plugin with more devices.
    pods.set(&["vm-2", "vm-1", "vm-70"]);
    kubelet.list_with_healthy(&ALL).await;
    node.hardware.set_available(VM_BYTES);
    kubelet.list_with_healthy(&["vm-1", "vm-2"]).await;
    // A pod ended, and the place is not for another one.
    pods.set(&["vm-1"]);
    kubelet.list_with_healthy(&["vm-1"]).await;
    node.hardware.set_available(4 * VM_BYTES);
    kubelet.list_with_healthy(&ALL).await;
}

#[tokio::test]
async fn while_memory_is_short_a_kubelet_that_restarts_finds_the_devices_of_its_pods_healthy() {
    let node = Node::with_plugin();
    let mut kubelet = Kubelet::start(&node.directory(), Manner::Takes);
    let pods = Pods::serve(&node.pod_resources());
    pods.set(&["vm-1"]);
    kubelet.list_with_healthy(&ALL).await;
    node.hardware.set_available(0);
    kubelet.list_with_healthy(&["vm-1"]).await;
    pods.fall_silent();
    kubelet.kill().await;
    let mut kubelet = Kubelet::start(&node.directory(), Manner::Takes);
    let healthy = |number: u8| if number == 1 { "Healthy" } else { "Unhealthy" };
    let expected = [0, 1, 2, 3].map(|number| (format!("vm-{number}"), healthy(number).to_owned()));
    assert_eq!(kubelet.list().await.unwrap(), expected);
    assert!(not_soon(kubelet.list()).await);
    // Without KVM none of them is left.
    node.hardware.set_broken("no KVM");
    kubelet.list_with_healthy(&[]).await;
}

#[tokio::test]
async fn while_memory_is_short_and_nobody_says_who_holds_devices_all_are_unhealthy() {
    let node = Node::with_plugin();
    let mut kubelet = Kubelet::start(&node.directory(), Manner::Takes);
    kubelet.list_with_healthy(&ALL).await;
    node.hardware.set_available(0);
    kubelet.list_with_healthy(&[]).await;
    let pods = Pods::serve(&node.pod_resources());
    pods.set(&["vm-3"]);
    kubelet.list_with_healthy(&["vm-3"]).await;
}

#[tokio::test]
async fn a_kubelet_that_hangs_over_its_pods_keeps_no_look_waiting() {
    let mut node = Node::new();
    node.tuning.look_deadline = Duration::from_millis(20);
    // A socket without an accepting server.
    let _silent = std::os::unix::net::UnixListener::bind(node.pod_resources()).unwrap();
    node.start();
    let mut kubelet = Kubelet::start(&node.directory(), Manner::Takes);
    kubelet.list_with_healthy(&ALL).await;
    node.hardware.set_available(0);
    kubelet.list_with_healthy(&[]).await;
    node.hardware.set_available(64 << 30);
    kubelet.list_with_healthy(&ALL).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_look_that_hangs_makes_every_device_unhealthy_until_it_ends() {
    let mut node = Node::new();
    node.tuning.look_deadline = Duration::from_millis(20);
    let hardware = node.hardware.clone();
    node.start();
    let mut kubelet = Kubelet::start(&node.directory(), Manner::Takes);
    kubelet.list_with_healthy(&ALL).await;
    let (release, released) = std::sync::mpsc::channel::<()>();
    let held = std::thread::spawn(move || {
        let _hanging = hardware.hang();
        let _ = released.recv();
    });
    kubelet.list_with_healthy(&[]).await;
    drop(release);
    kubelet.list_with_healthy(&ALL).await;
    held.join().unwrap();
}
