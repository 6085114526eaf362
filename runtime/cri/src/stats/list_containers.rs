//! ListContainerStats: the usage of the running containers passing the filter.

use proto_cri::v1;

use super::figures::of_containers;
use crate::error::Failure;
use crate::serve::Cri;

pub(crate) async fn list_containers(
    cri: &Cri,
    request: v1::ListContainerStatsRequest,
) -> Result<v1::ListContainerStatsResponse, Failure> {
    let stats = of_containers(cri, &request.filter.unwrap_or_default()).await;
    Ok(v1::ListContainerStatsResponse { stats })
}
