//! RemovePodSandbox: stops it first. A missing pod is no error.

use proto_cri::v1;
use runtime_pod::Pods;

use crate::error::Failure;
use crate::ids;
use crate::subject;

pub(crate) async fn remove(
    pods: &Pods,
    request: v1::RemovePodSandboxRequest,
) -> Result<v1::RemovePodSandboxResponse, Failure> {
    ids::given("pod_sandbox_id", &request.pod_sandbox_id)?;
    subject::pod(pods, &request.pod_sandbox_id);
    pods.remove(&request.pod_sandbox_id).await?;
    Ok(v1::RemovePodSandboxResponse {})
}
