//! Exec: a URL where a command's streams will be served.

use proto_cri::v1;

use crate::error::Failure;
use crate::serve::Cri;

pub(crate) async fn exec(_: &Cri, _: v1::ExecRequest) -> Result<v1::ExecResponse, Failure> {
    Err(Failure::Absent("Exec"))
}
