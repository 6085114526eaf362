//! RuntimeConfig: who makes the pods' cgroups, and how.

use proto_cri::v1;

use crate::error::Failure;
use crate::serve::Cri;

pub(crate) async fn config(
    _: &Cri,
    _: v1::RuntimeConfigRequest,
) -> Result<v1::RuntimeConfigResponse, Failure> {
    Err(Failure::Absent("RuntimeConfig"))
}
