//! StopPodSandbox: idempotent, and a missing pod is no error.

use proto_cri::v1;
use runtime_pod::Pods;

use crate::error::Failure;
use crate::ids;
use crate::subject;

pub(crate) async fn stop(
    pods: &Pods,
    request: v1::StopPodSandboxRequest,
) -> Result<v1::StopPodSandboxResponse, Failure> {
    ids::given("pod_sandbox_id", &request.pod_sandbox_id)?;
    subject::pod(pods, &request.pod_sandbox_id);
    pods.stop(&request.pod_sandbox_id).await?;
    Ok(v1::StopPodSandboxResponse {})
}
