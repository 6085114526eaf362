//! RemoveContainer: kills a running one first. A missing one is no error.

use proto_cri::v1;
use runtime_pod::Pods;

use crate::error::Failure;
use crate::ids;
use crate::subject;

pub(crate) async fn remove(
    pods: &Pods,
    request: v1::RemoveContainerRequest,
) -> Result<v1::RemoveContainerResponse, Failure> {
    ids::given("container_id", &request.container_id)?;
    subject::container(pods, &request.container_id);
    pods.remove_container(&request.container_id).await?;
    Ok(v1::RemoveContainerResponse {})
}
