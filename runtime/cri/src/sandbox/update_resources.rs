//! UpdatePodSandboxResources: a new size for the pod, in force when this answers.

use proto_cri::v1;

use crate::error::Failure;
use crate::serve::Cri;

pub(crate) async fn update_resources(
    _: &Cri,
    _: v1::UpdatePodSandboxResourcesRequest,
) -> Result<v1::UpdatePodSandboxResourcesResponse, Failure> {
    Err(Failure::Absent("UpdatePodSandboxResources"))
}
