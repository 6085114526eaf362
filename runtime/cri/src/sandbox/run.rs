//! RunPodSandbox: answers when the pod's VM runs, its network is up and its agent serves.

use proto_cri::v1;
use runtime_pod::Pods;

use crate::convert::pod_spec;
use crate::error::Failure;

pub(crate) async fn run(
    pods: &Pods,
    request: v1::RunPodSandboxRequest,
) -> Result<v1::RunPodSandboxResponse, Failure> {
    let config = request.config.ok_or_else(|| Failure::invalid("config is missing"))?;
    let pod_sandbox_id = pods.run(pod_spec(config, request.runtime_handler)?).await?;
    Ok(v1::RunPodSandboxResponse { pod_sandbox_id })
}
