//! StreamPodSandboxMetrics: ListPodSandboxMetrics in pieces.

use proto_cri::v1;

use crate::error::Failure;
use crate::serve::Cri;
use crate::stream::Streamed;

pub(crate) async fn stream_metrics(
    _: &Cri,
    _: v1::StreamPodSandboxMetricsRequest,
) -> Result<Streamed<v1::StreamPodSandboxMetricsResponse>, Failure> {
    Err(Failure::Absent("StreamPodSandboxMetrics"))
}
