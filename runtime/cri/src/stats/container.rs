//! ContainerStats: what one container uses.

use proto_cri::v1;

use crate::error::Failure;
use crate::serve::Cri;

pub(crate) async fn container(
    _: &Cri,
    _: v1::ContainerStatsRequest,
) -> Result<v1::ContainerStatsResponse, Failure> {
    Err(Failure::Absent("ContainerStats"))
}
