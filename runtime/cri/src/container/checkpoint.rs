//! CheckpointContainer is not implemented; the kubelet passes the error on to its caller.

use proto_cri::v1;

use crate::error::Failure;
use crate::serve::Cri;

pub(crate) async fn checkpoint(
    _: &Cri,
    _: v1::CheckpointContainerRequest,
) -> Result<v1::CheckpointContainerResponse, Failure> {
    Err(Failure::Absent("CheckpointContainer"))
}
