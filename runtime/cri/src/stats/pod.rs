//! PodSandboxStats: the usage of one pod, the VM beside its containers.

use proto_cri::v1;

use super::list_pods::of_pod;
use crate::error::Failure;
use crate::serve::Cri;
use crate::subject;

pub(crate) async fn pod(
    cri: &Cri,
    request: v1::PodSandboxStatsRequest,
) -> Result<v1::PodSandboxStatsResponse, Failure> {
    let id = request.pod_sandbox_id;
    subject::pod(&cri.pods, &id);
    let Some(view) = cri.pods.pod(&id) else { return Err(Failure::NotFound { what: "pod sandbox", id }) };
    let usage = cri.pods.usage(&id).await?;
    Ok(v1::PodSandboxStatsResponse { stats: Some(of_pod(cri, &view, &usage)) })
}
