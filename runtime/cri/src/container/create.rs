//! CreateContainer: answers when the container stands in the guest, held before its first instruction.

use proto_cri::v1;
use runtime_pod::Pods;

use crate::convert::container_spec;
use crate::error::Failure;

pub(crate) async fn create(
    pods: &Pods,
    request: v1::CreateContainerRequest,
) -> Result<v1::CreateContainerResponse, Failure> {
    let config = request.config.ok_or_else(|| Failure::invalid("config is missing"))?;
    let container_id = pods.create_container(&request.pod_sandbox_id, container_spec(config)?).await?;
    Ok(v1::CreateContainerResponse { container_id })
}
