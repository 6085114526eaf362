//! Attach: a URL where the streams of a running container will be served.

use proto_cri::v1;

use crate::error::Failure;
use crate::serve::Cri;

pub(crate) async fn attach(_: &Cri, _: v1::AttachRequest) -> Result<v1::AttachResponse, Failure> {
    Err(Failure::Absent("Attach"))
}
