//! ListPodSandboxMetrics: every pod's metrics.

use proto_cri::v1;

use crate::error::Failure;
use crate::serve::Cri;

pub(crate) async fn list_metrics(
    _: &Cri,
    _: v1::ListPodSandboxMetricsRequest,
) -> Result<v1::ListPodSandboxMetricsResponse, Failure> {
    Err(Failure::Absent("ListPodSandboxMetrics"))
}
