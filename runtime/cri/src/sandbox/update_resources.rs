//! UpdatePodSandboxResources: the pod's VM grows, or gives back memory if possible. Values unset in the
//! request stay.

use proto_cri::v1;

use crate::convert::resources_in;
use crate::error::Failure;
use crate::serve::Cri;
use crate::subject;

pub(crate) async fn update_resources(
    cri: &Cri,
    request: v1::UpdatePodSandboxResourcesRequest,
) -> Result<v1::UpdatePodSandboxResourcesResponse, Failure> {
    subject::pod(&cri.pods, &request.pod_sandbox_id);
    let resources = request.resources.map(resources_in).unwrap_or_default();
    let overhead = request.overhead.map(resources_in).unwrap_or_default();
    cri.pods.update_pod(&request.pod_sandbox_id, resources, overhead).await?;
    Ok(v1::UpdatePodSandboxResourcesResponse {})
}
