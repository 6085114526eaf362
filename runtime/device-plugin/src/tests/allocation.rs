//! The kubelet's requests to a registered plugin.

use std::collections::BTreeMap;

use proto_device_plugin::v1beta1::{
    AllocateRequest, ContainerAllocateRequest, ContainerAllocateResponse,
    ContainerPreferredAllocationRequest, Empty, PreStartContainerRequest, PreferredAllocationRequest,
};
use tonic::Code;

use super::kubelet::{Kubelet, Manner};
use super::node::Node;

fn ids(ids: &[&str]) -> Vec<String> {
    ids.iter().map(|id| (*id).to_owned()).collect()
}

fn containers(each: &[&[&str]]) -> AllocateRequest {
    let container = |of: &&[&str]| ContainerAllocateRequest { device_ids: ids(of) };
    AllocateRequest { container_requests: each.iter().map(container).collect() }
}

async fn registered() -> (Node, Kubelet) {
    let node = Node::with_plugin();
    let mut kubelet = Kubelet::start(&node.directory(), Manner::Takes);
    kubelet.registered().await;
    (node, kubelet)
}

#[tokio::test]
async fn an_allocation_names_each_containers_devices_and_changes_nothing_in_it() {
    let (_node, kubelet) = registered().await;
    let request = containers(&[&["vm-3", "vm-1"], &["vm-0"], &[]]);
    let answer = kubelet.plugin().await.allocate(request).await.unwrap().into_inner();
    let named = |devices: &str| ContainerAllocateResponse {
        annotations: BTreeMap::from([("podvisor.io/vm".to_owned(), devices.to_owned())]),
        ..ContainerAllocateResponse::default()
    };
    assert_eq!(answer.container_responses, [named("vm-1,vm-3"), named("vm-0"), named("")]);
}

#[tokio::test]
async fn devices_that_were_never_listed_are_refused() {
    let (_node, kubelet) = registered().await;
    let mut plugin = kubelet.plugin().await;
    for unknown in ["vm-4", "vm-01", "gpu-0", "", "../vm-0"] {
        let refused = plugin.allocate(containers(&[&["vm-0"], &[unknown]])).await.unwrap_err();
        assert_eq!(refused.code(), Code::InvalidArgument);
        assert!(refused.message().contains("podvisor.io/vm: no device has the id"), "{refused}");
    }
    let long = "x".repeat(100_000);
    let refused = plugin.allocate(containers(&[&[&long]])).await.unwrap_err();
    assert!(refused.code() == Code::InvalidArgument && refused.message().len() < 200);
}

#[tokio::test]
async fn a_request_that_is_too_large_is_refused_and_the_plugin_goes_on() {
    let (_node, kubelet) = registered().await;
    let mut plugin = kubelet.plugin().await;
    let large = "x".repeat(2 << 20);
    assert_eq!(plugin.allocate(containers(&[&[&large]])).await.unwrap_err().code(), Code::OutOfRange);
    plugin.allocate(containers(&[&["vm-0"]])).await.unwrap();
}

#[tokio::test]
async fn the_preferred_devices_are_the_first_after_those_that_must_be() {
    let (_node, kubelet) = registered().await;
    let mut plugin = kubelet.plugin().await;
    let asked = |size| PreferredAllocationRequest {
        container_requests: vec![ContainerPreferredAllocationRequest {
            available_device_ids: ids(&["vm-3", "vm-2", "vm-0"]),
            must_include_device_ids: ids(&["vm-3"]),
            allocation_size: size,
        }],
    };
    let answer = plugin.get_preferred_allocation(asked(2)).await.unwrap().into_inner();
    assert_eq!(answer.container_responses[0].device_ids, ["vm-3", "vm-0"]);
    for size in [-1, 0, 5, i32::MAX] {
        let refused = plugin.get_preferred_allocation(asked(size)).await.unwrap_err();
        assert_eq!(refused.code(), Code::InvalidArgument, "{size}");
    }
}

#[tokio::test]
async fn nothing_is_needed_before_a_container_starts() {
    let (_node, kubelet) = registered().await;
    let request = PreStartContainerRequest { device_ids: ids(&["vm-0"]) };
    kubelet.plugin().await.pre_start_container(request).await.unwrap();
}

#[tokio::test]
async fn watchers_beyond_a_few_are_refused() {
    let (_node, kubelet) = registered().await;
    let mut plugin = kubelet.plugin().await;
    let mut watched = Vec::new();
    let refused = loop {
        match plugin.list_and_watch(Empty {}).await {
            Ok(list) => watched.push(list),
            Err(status) => break status,
        }
    };
    assert_eq!(refused.code(), Code::ResourceExhausted);
    assert!((7..=8).contains(&watched.len()), "the kubelet's own may not have come yet: {}", watched.len());
}
