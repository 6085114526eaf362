//! The devices held by pods, as listed by the kubelet (its pod-resources API, v1). The device plugin API does
//! not report the return of a device.

use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;

use proto_device_plugin::pod_resources::ListPodResourcesRequest;
use proto_device_plugin::pod_resources::pod_resources_lister_client::PodResourcesListerClient;

use crate::ResourceName;
use crate::channel::{chain, connect};
use crate::devices::Devices;

/// Longest answer in bytes, as in the kubelet's own clients (`defaultPodResourcesMaxSize`, test/e2e_node).
const ANSWER_BYTES_MAX: usize = 16 * 1024 * 1024;

/// Asks the kubelet on its pod-resources socket.
///
/// # Errors
/// The kubelet cannot be reached, or does not answer in time. The message names the cause.
pub(crate) async fn held(
    socket: &Path,
    resource: &ResourceName,
    devices: Devices,
    deadline: Duration,
) -> Result<BTreeSet<u16>, String> {
    let asked = async {
        let channel = connect(socket).await.map_err(|error| chain(&error))?;
        let mut lister = PodResourcesListerClient::new(channel).max_decoding_message_size(ANSWER_BYTES_MAX);
        let answer = lister.list(ListPodResourcesRequest {}).await;
        answer.map_err(|status| status.message().to_owned())
    };
    let answer = tokio::time::timeout(deadline, asked).await;
    let answer = answer.map_err(|_| format!("no answer within {deadline:?}"))??.into_inner();
    let containers = answer.pod_resources.into_iter().flat_map(|pod| pod.containers);
    let lists = containers.flat_map(|container| container.devices);
    let ours = lists.filter(|list| list.resource_name == resource.as_str());
    // Skips ids from an earlier plugin with more devices.
    Ok(ours.flat_map(|list| list.device_ids).filter_map(|id| devices.number(&id)).collect())
}
