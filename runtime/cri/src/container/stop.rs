//! StopContainer: returns when it has ended. Idempotent, and a missing one is no error.

use std::time::Duration;

use proto_cri::v1;
use runtime_pod::Pods;

use crate::error::Failure;
use crate::ids;
use crate::subject;

pub(crate) async fn stop(
    pods: &Pods,
    request: v1::StopContainerRequest,
) -> Result<v1::StopContainerResponse, Failure> {
    // Zero and below: kill at once (api.proto, `StopContainerRequest.timeout`).
    let grace = Duration::from_secs(u64::try_from(request.timeout).unwrap_or(0));
    ids::given("container_id", &request.container_id)?;
    subject::container(pods, &request.container_id);
    pods.stop_container(&request.container_id, grace).await?;
    Ok(v1::StopContainerResponse {})
}
