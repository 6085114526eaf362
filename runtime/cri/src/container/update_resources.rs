//! UpdateContainerResources: new limits for a container, in force when this answers.

use proto_cri::v1;

use crate::error::Failure;
use crate::serve::Cri;

pub(crate) async fn update_resources(
    _: &Cri,
    _: v1::UpdateContainerResourcesRequest,
) -> Result<v1::UpdateContainerResourcesResponse, Failure> {
    Err(Failure::Absent("UpdateContainerResources"))
}
