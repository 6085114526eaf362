//! ListPodSandboxStats: what the pods that pass the filter use.

use proto_cri::v1;

use crate::error::Failure;
use crate::serve::Cri;

pub(crate) async fn list_pods(
    _: &Cri,
    _: v1::ListPodSandboxStatsRequest,
) -> Result<v1::ListPodSandboxStatsResponse, Failure> {
    Err(Failure::Absent("ListPodSandboxStats"))
}
