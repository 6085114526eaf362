//! StreamPodSandboxStats: ListPodSandboxStats in pieces.

use proto_cri::v1;

use super::list_pods::of_pods;
use crate::error::Failure;
use crate::serve::Cri;
use crate::stream::{Streamed, in_pieces};

pub(crate) async fn stream_pods(
    cri: &Cri,
    request: v1::StreamPodSandboxStatsRequest,
) -> Result<Streamed<v1::StreamPodSandboxStatsResponse>, Failure> {
    let stats = of_pods(cri, &request.filter.unwrap_or_default()).await;
    Ok(in_pieces(stats, |pod_sandbox_stats| v1::StreamPodSandboxStatsResponse { pod_sandbox_stats }))
}
