//! UpdateRuntimeConfig: the node's range of pod addresses.

use proto_cri::v1;

use crate::error::Failure;
use crate::serve::Cri;

pub(crate) async fn update_config(
    _: &Cri,
    _: v1::UpdateRuntimeConfigRequest,
) -> Result<v1::UpdateRuntimeConfigResponse, Failure> {
    Err(Failure::Absent("UpdateRuntimeConfig"))
}
