//! UpdateContainerResources: new limits, in effect when the call returns. ContainerStatus returns them at
//! once.

use proto_cri::v1;

use crate::convert::resources_in;
use crate::error::Failure;
use crate::serve::Cri;
use crate::subject;

pub(crate) async fn update_resources(
    cri: &Cri,
    request: v1::UpdateContainerResourcesRequest,
) -> Result<v1::UpdateContainerResourcesResponse, Failure> {
    if request.windows.is_some() {
        return Err(Failure::invalid("windows: this node runs Linux"));
    }
    subject::container(&cri.pods, &request.container_id);
    let update = request.linux.map(resources_in).unwrap_or_default();
    cri.pods.update_container(&request.container_id, update).await?;
    Ok(v1::UpdateContainerResourcesResponse {})
}
