//! StreamContainerStats: ListContainerStats in pieces.

use proto_cri::v1;

use super::figures::of_containers;
use crate::error::Failure;
use crate::serve::Cri;
use crate::stream::{Streamed, in_pieces};

pub(crate) async fn stream_containers(
    cri: &Cri,
    request: v1::StreamContainerStatsRequest,
) -> Result<Streamed<v1::StreamContainerStatsResponse>, Failure> {
    let stats = of_containers(cri, &request.filter.unwrap_or_default()).await;
    Ok(in_pieces(stats, |container_stats| v1::StreamContainerStatsResponse { container_stats }))
}
