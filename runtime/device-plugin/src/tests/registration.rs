//! How the plugin gets registered, with kubelets of every temper.

use std::time::Duration;

use super::kubelet::{Kubelet, Manner};
use super::node::{Node, not_soon, soon, until};
use crate::PluginError;
use crate::register::OPTIONS;

/// Short, for delays a test waits out.
const SHORT: Duration = Duration::from_millis(20);

#[tokio::test]
async fn a_kubelet_gets_the_resource_its_options_and_every_device() {
    let node = Node::with_plugin();
    let mut kubelet = Kubelet::start(&node.directory(), Manner::Takes);
    let registered = kubelet.registered().await;
    assert_eq!(registered.request.version, "v1beta1");
    assert_eq!(registered.request.resource_name, "podvisor.io/vm");
    assert_eq!(registered.request.endpoint, "podvisor-vm.sock");
    assert_eq!((registered.request.options, registered.options), (Some(OPTIONS), Some(OPTIONS)));
    let healthy = |number| (format!("vm-{number}"), "Healthy".to_owned());
    assert_eq!(kubelet.list().await.unwrap(), [0, 1, 2, 3].map(healthy));
    assert!(not_soon(kubelet.registered()).await, "one registration is enough");
}

#[tokio::test]
async fn the_socket_is_for_root_alone() {
    use std::os::unix::fs::PermissionsExt;
    let node = Node::with_plugin();
    Kubelet::start(&node.directory(), Manner::Takes).registered().await;
    let mode = node.socket().metadata().unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
}

#[tokio::test]
async fn a_kubelet_that_is_not_there_yet_is_waited_for() {
    let mut node = Node::new();
    std::fs::remove_dir(node.directory()).unwrap();
    node.tuning.poll_every = SHORT;
    node.start();
    assert!(not_soon(until(|| node.directory().exists())).await, "the directory is the kubelet's to make");
    std::fs::create_dir(node.directory()).unwrap();
    until(|| node.socket().exists()).await;
    Kubelet::start(&node.directory(), Manner::Takes).registered().await;
}

#[tokio::test]
async fn a_socket_that_a_dead_kubelet_left_is_tried_until_a_live_one_has_it() {
    let node = Node::new();
    drop(super::kubelet::listen(&node.directory()));
    let mut node = node;
    node.start();
    until(|| node.socket().exists()).await;
    Kubelet::start(&node.directory(), Manner::Takes).registered().await;
}

#[tokio::test]
async fn a_kubelet_that_refuses_is_asked_again_later() {
    let mut node = Node::new();
    node.tuning.refused_retry = SHORT;
    node.start();
    let mut kubelet = Kubelet::start(&node.directory(), Manner::Refuses);
    kubelet.registered().await;
    kubelet.registered().await;
    kubelet.set_manner(Manner::Takes);
    assert!(kubelet.list().await.is_some());
}

#[tokio::test]
async fn a_kubelet_that_refuses_is_not_asked_again_for_every_change_of_its_directory() {
    let node = Node::with_plugin();
    let mut kubelet = Kubelet::start(&node.directory(), Manner::Refuses);
    kubelet.registered().await;
    for name in ["gpu.sock", "nic.sock"] {
        std::fs::write(node.directory().join(name), "").unwrap();
        assert!(not_soon(kubelet.registered()).await);
    }
    // Another kubelet is another matter.
    let mut next = Kubelet::start(&node.directory(), Manner::Takes);
    next.registered().await;
}

#[tokio::test]
async fn a_kubelet_that_hangs_in_a_registration_is_given_up_and_asked_again() {
    let mut node = Node::new();
    node.tuning.register_deadline = SHORT;
    node.start();
    let mut kubelet = Kubelet::start(&node.directory(), Manner::Hangs);
    kubelet.registered().await;
    kubelet.registered().await;
    // The other deadline is for a responsive kubelet.
    assert!(node.stop().await.is_ok());
    node.tuning.register_deadline = Duration::from_secs(60);
    kubelet.set_manner(Manner::Takes);
    node.start();
    assert!(kubelet.list().await.is_some());
}

#[tokio::test]
async fn a_kubelet_that_hangs_does_not_hold_the_plugins_end() {
    let mut node = Node::with_plugin();
    let mut kubelet = Kubelet::start(&node.directory(), Manner::Hangs);
    kubelet.registered().await;
    assert!(node.stop().await.is_ok());
    assert!(!node.socket().exists());
}

#[tokio::test]
async fn a_kubelet_that_does_not_watch_or_stops_watching_is_asked_again() {
    let mut node = Node::new();
    node.tuning.unwatched = Duration::from_millis(200);
    node.start();
    let mut kubelet = Kubelet::start(&node.directory(), Manner::TakesBlindly);
    kubelet.registered().await;
    kubelet.registered().await;
    kubelet.set_manner(Manner::Takes);
    assert!(kubelet.list().await.is_some());
    kubelet.look_away();
    soon(async { while kubelet.list().await.is_none() {} }).await;
}

#[tokio::test]
async fn a_configuration_that_cannot_be_is_refused() {
    let mut node = Node::new();
    for vms in [0, 1001, u16::MAX] {
        node.vms = vms;
        node.start();
        let refused = node.stop().await;
        // The end may come before the configuration is looked at, and never after.
        assert!(matches!(refused, Err(PluginError::Count(count)) if count == vms), "{refused:?}");
    }
    let mut config = Node::new().config();
    config.directory = format!("/{}", "d".repeat(100)).into();
    let refused = crate::run(config, std::future::pending()).await.unwrap_err().to_string();
    assert!(refused.contains("longer than a socket's path may be (107 bytes)"), "{refused}");
}
