//! StreamPodSandboxStats: ListPodSandboxStats in pieces.

use proto_cri::v1;

use crate::error::Failure;
use crate::serve::Cri;
use crate::stream::Streamed;

pub(crate) async fn stream_pods(
    _: &Cri,
    _: v1::StreamPodSandboxStatsRequest,
) -> Result<Streamed<v1::StreamPodSandboxStatsResponse>, Failure> {
    Err(Failure::Absent("StreamPodSandboxStats"))
}
