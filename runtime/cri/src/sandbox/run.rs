//! RunPodSandbox: answers when the pod's VM runs, its network is up and its agent serves.

use proto_cri::v1;
use runtime_pod::Pods;

use super::other_runtimes;
use crate::convert::pod_spec;
use crate::error::Failure;
use crate::subject;

pub(crate) async fn run(
    pods: &Pods,
    request: v1::RunPodSandboxRequest,
) -> Result<v1::RunPodSandboxResponse, Failure> {
    let config = request.config.ok_or_else(|| Failure::invalid("config is missing"))?;
    other_runtimes::warn_of(&config.annotations);
    let spec = pod_spec(config, request.runtime_handler)?;
    subject::new_pod(&spec);
    let pod_sandbox_id = pods.run(spec).await?;
    subject::pod_id(&pod_sandbox_id);
    Ok(v1::RunPodSandboxResponse { pod_sandbox_id })
}
