//! `tests-pod-resources SOCKET RESOURCE`: asks a kubelet's pod-resources socket for the healthy devices of a
//! resource and for those held by pods, and prints both as one JSON object. If the kubelet does not answer
//! within a minute, this is an error.
#![forbid(unsafe_code)]

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result};
use clap::Parser;
use hyper_util::rt::TokioIo;
use proto_device_plugin::pod_resources::pod_resources_lister_client::PodResourcesListerClient;
use proto_device_plugin::pod_resources::{
    AllocatableResourcesRequest, ContainerDevices, ListPodResourcesRequest,
};
use serde_json::json;
use tokio::net::UnixStream;
use tonic::transport::{Endpoint, Uri};

/// How long a kubelet may take to answer both calls.
const DEADLINE: Duration = Duration::from_secs(50);

#[derive(Parser)]
#[command(about = "Prints the healthy devices of a resource, and those that pods hold")]
struct Options {
    /// The kubelet's pod-resources socket.
    socket: PathBuf,
    /// Name of the resource.
    resource: String,
}

#[tokio::main]
async fn main() -> Result<()> {
    let options = Options::parse();
    let answer = tokio::time::timeout(DEADLINE, ask(&options)).await;
    println!("{}", answer.context("the kubelet does not answer")??);
    Ok(())
}

async fn ask(options: &Options) -> Result<serde_json::Value> {
    let socket = options.socket.clone();
    let dial = tower::service_fn(move |_: Uri| {
        let socket = socket.clone();
        async move { UnixStream::connect(socket).await.map(TokioIo::new) }
    });
    let channel = Endpoint::from_static("http://localhost").connect_with_connector(dial).await?;
    let mut kubelet = PodResourcesListerClient::new(channel);
    let healthy = kubelet.get_allocatable_resources(AllocatableResourcesRequest {}).await?.into_inner();
    let pods = kubelet.list(ListPodResourcesRequest {}).await?.into_inner().pod_resources;
    let mut held: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for pod in pods {
        let devices = pod.containers.into_iter().flat_map(|container| container.devices).collect();
        let ids = options.of_the_resource(devices);
        if !ids.is_empty() {
            held.entry(pod.name).or_default().extend(ids);
        }
    }
    Ok(json!({ "healthy": options.of_the_resource(healthy.devices), "held": held }))
}

impl Options {
    fn of_the_resource(&self, devices: Vec<ContainerDevices>) -> Vec<String> {
        let ours = devices.into_iter().filter(|list| list.resource_name == self.resource);
        ours.flat_map(|list| list.device_ids).collect()
    }
}
