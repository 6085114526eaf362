//! StartContainer: only from Created. The user sees the error's message.

use proto_cri::v1;
use runtime_pod::Pods;

use crate::error::Failure;
use crate::subject;

pub(crate) async fn start(
    pods: &Pods,
    request: v1::StartContainerRequest,
) -> Result<v1::StartContainerResponse, Failure> {
    subject::container(pods, &request.container_id);
    pods.start_container(&request.container_id).await?;
    Ok(v1::StartContainerResponse {})
}
