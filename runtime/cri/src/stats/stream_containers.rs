//! StreamContainerStats: ListContainerStats in pieces.

use proto_cri::v1;

use crate::error::Failure;
use crate::serve::Cri;
use crate::stream::Streamed;

pub(crate) async fn stream_containers(
    _: &Cri,
    _: v1::StreamContainerStatsRequest,
) -> Result<Streamed<v1::StreamContainerStatsResponse>, Failure> {
    Err(Failure::Absent("StreamContainerStats"))
}
