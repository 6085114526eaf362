//! Restarts of a kubelet or of a plugin, and their effect on the registration.

use std::fs;
use std::os::unix::net::UnixListener;
use std::time::Duration;

use super::kubelet::{Kubelet, Manner};
use super::node::{Node, soon, until};
use crate::identity::Identity;

#[tokio::test]
async fn a_restarted_kubelet_that_removed_all_sockets_gets_the_plugin_again() {
    let node = Node::with_plugin();
    let mut kubelet = Kubelet::start(&node.directory(), Manner::Takes);
    for _ in 0..3 {
        kubelet.registered().await;
        assert_eq!(kubelet.list().await.unwrap().len(), 4);
        kubelet.kill().await;
        kubelet = Kubelet::start(&node.directory(), Manner::Takes);
    }
    kubelet.registered().await;
}

#[tokio::test]
async fn a_restarted_kubelet_is_seen_without_notifications_too() {
    let mut node = Node::new();
    (node.tuning.notify, node.tuning.poll_every) = (false, Duration::from_millis(5));
    node.start();
    let mut first = Kubelet::start(&node.directory(), Manner::Takes);
    first.registered().await;
    first.kill().await;
    Kubelet::start(&node.directory(), Manner::Takes).registered().await;
}

#[tokio::test]
async fn a_kubelet_that_left_the_plugins_socket_alone_gets_the_plugin_again() {
    let node = Node::with_plugin();
    let mut first = Kubelet::start(&node.directory(), Manner::Takes);
    first.registered().await;
    let socket = Identity::at(&node.socket()).unwrap();
    first.kill().await;
    // As if the sockets were not the kubelet's to remove: one comes in the other's place at once.
    let elsewhere = node.directory().with_file_name("elsewhere");
    let mut second = Kubelet::start(&elsewhere, Manner::Refuses);
    fs::rename(elsewhere.join("kubelet.sock"), node.directory().join("kubelet.sock")).unwrap();
    second.registered().await;
    assert_eq!(Identity::at(&node.socket()).unwrap(), socket);
}

#[tokio::test]
async fn a_socket_that_a_stranger_removed_is_made_again() {
    let node = Node::with_plugin();
    let mut kubelet = Kubelet::start(&node.directory(), Manner::Takes);
    kubelet.registered().await;
    assert!(kubelet.list().await.is_some());
    fs::remove_file(node.socket()).unwrap();
    kubelet.registered().await;
    assert!(node.socket().exists());
}

#[tokio::test]
async fn a_socket_that_a_stranger_put_in_the_plugins_place_is_taken_back() {
    let node = Node::with_plugin();
    let mut kubelet = Kubelet::start(&node.directory(), Manner::Takes);
    kubelet.registered().await;
    let theirs = node.directory().join("theirs.sock");
    let _stranger = UnixListener::bind(&theirs).unwrap();
    let identity = Identity::at(&theirs).unwrap();
    fs::rename(&theirs, node.socket()).unwrap();
    kubelet.registered().await;
    assert_ne!(Identity::at(&node.socket()).unwrap(), identity);
}

#[tokio::test]
async fn a_directory_that_was_made_anew_gets_the_plugin_again() {
    let mut node = Node::new();
    node.tuning.poll_every = Duration::from_millis(5);
    node.start();
    let mut kubelet = Kubelet::start(&node.directory(), Manner::Takes);
    kubelet.registered().await;
    kubelet.kill().await;
    fs::remove_dir_all(node.directory()).unwrap();
    Kubelet::start(&node.directory(), Manner::Takes).registered().await;
    until(|| node.socket().exists()).await;
}

#[tokio::test]
async fn a_second_plugin_is_refused_and_the_first_goes_on() {
    let mut node = Node::with_plugin();
    let mut kubelet = Kubelet::start(&node.directory(), Manner::Takes);
    kubelet.registered().await;
    let socket = Identity::at(&node.socket()).unwrap();
    let refused = crate::run(node.config(), std::future::pending());
    let refused = soon(refused).await.unwrap_err().to_string();
    assert!(refused.contains(&format!("pid {},", std::process::id())), "{refused}");
    assert!(refused.contains("another podvisor device-plugin"), "{refused}");
    assert_eq!(Identity::at(&node.socket()).unwrap(), socket);
    node.hardware.set_broken("no KVM");
    kubelet.list_with_healthy(&[]).await;
    assert!(node.stop().await.is_ok());
}

#[tokio::test]
async fn a_stopped_plugin_leaves_no_socket_and_ends_the_list() {
    let mut node = Node::with_plugin();
    let mut kubelet = Kubelet::start(&node.directory(), Manner::Takes);
    assert!(kubelet.list().await.is_some());
    assert!(node.stop().await.is_ok());
    assert_eq!(kubelet.list().await, None);
    let left: Vec<_> =
        fs::read_dir(node.directory()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(left, ["kubelet.sock"]);
}

#[tokio::test]
async fn a_stopped_plugin_leaves_a_strangers_socket_alone() {
    let mut node = Node::new();
    node.tuning.notify = false;
    node.start();
    until(|| node.socket().exists()).await;
    let theirs = node.directory().join("theirs.sock");
    let _stranger = UnixListener::bind(&theirs).unwrap();
    fs::rename(&theirs, node.socket()).unwrap();
    assert!(node.stop().await.is_ok());
    assert!(node.socket().exists());
}

#[tokio::test]
async fn a_kubelet_that_does_not_read_does_not_hold_the_plugins_end() {
    let mut node = Node::new();
    node.tuning.drain = Duration::from_millis(20);
    node.start();
    until(|| node.socket().exists()).await;
    // A connection without a word.
    let silent = tokio::net::UnixStream::connect(node.socket()).await.unwrap();
    assert!(node.stop().await.is_ok());
    assert!(!node.socket().exists());
    drop(silent);
}

#[tokio::test]
async fn a_socket_that_a_killed_plugin_left_is_replaced() {
    let mut node = Node::with_plugin();
    until(|| node.socket().exists()).await;
    node.kill().await;
    assert!(node.socket().exists());
    node.start();
    let mut kubelet = Kubelet::start(&node.directory(), Manner::Takes);
    kubelet.registered().await;
    assert!(kubelet.list().await.is_some());
}

#[tokio::test]
async fn what_cannot_be_removed_from_the_sockets_place_is_waited_out() {
    let mut node = Node::new();
    node.tuning.poll_every = Duration::from_millis(5);
    fs::create_dir(node.socket()).unwrap();
    node.start();
    let mut kubelet = Kubelet::start(&node.directory(), Manner::Takes);
    fs::remove_dir(node.socket()).unwrap();
    kubelet.registered().await;
}
