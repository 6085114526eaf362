//! PodSandboxStats: the usage of one pod, the VM beside its containers.

use proto_cri::v1;

use super::figures::{disk, running};
use super::list_pods::stats;
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
    let containers: Vec<_> = running(&cri.pods).filter(|one| one.pod_id == view.id).collect();
    Ok(v1::PodSandboxStatsResponse { stats: Some(stats(&view, &usage, &containers, &disk(cri))) })
}
