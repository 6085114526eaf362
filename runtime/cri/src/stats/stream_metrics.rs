//! StreamPodSandboxMetrics: ListPodSandboxMetrics in pieces.

use proto_cri::v1;

use super::list_metrics::in_cri;
use crate::error::Failure;
use crate::serve::Cri;
use crate::stream::{Streamed, in_pieces};

pub(crate) async fn stream_metrics(
    cri: &Cri,
    _: v1::StreamPodSandboxMetricsRequest,
) -> Result<Streamed<v1::StreamPodSandboxMetricsResponse>, Failure> {
    let metrics = in_cri(cri).await;
    Ok(in_pieces(metrics, |pod_sandbox_metrics| v1::StreamPodSandboxMetricsResponse { pod_sandbox_metrics }))
}
