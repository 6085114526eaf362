//! PodSandboxStats: what one pod uses.

use proto_cri::v1;

use crate::error::Failure;
use crate::serve::Cri;

pub(crate) async fn pod(
    _: &Cri,
    _: v1::PodSandboxStatsRequest,
) -> Result<v1::PodSandboxStatsResponse, Failure> {
    Err(Failure::Absent("PodSandboxStats"))
}
