//! PodSandboxStatus: NotFound where there is none; verbose adds the machine and the phases of its start.

use std::collections::HashMap;

use proto_cri::v1;
use runtime_pod::Pods;

use crate::convert::{container_status, pod_status};
use crate::error::Failure;
use crate::runtime::now_ns;

pub(crate) async fn status(
    pods: &Pods,
    request: v1::PodSandboxStatusRequest,
) -> Result<v1::PodSandboxStatusResponse, Failure> {
    let id = request.pod_sandbox_id;
    let Some(pod) = pods.pod(&id) else { return Err(Failure::NotFound { what: "pod sandbox", id }) };
    let containers = pods.containers();
    let info = if request.verbose {
        let machine = pods.inspect(&pod.id).await;
        HashMap::from([("info".to_owned(), serde_json::json!(machine).to_string())])
    } else {
        HashMap::new()
    };
    Ok(v1::PodSandboxStatusResponse {
        containers_statuses: containers.iter().filter(|c| c.pod_id == pod.id).map(container_status).collect(),
        status: Some(pod_status(&pod)),
        info,
        timestamp: now_ns(),
    })
}
