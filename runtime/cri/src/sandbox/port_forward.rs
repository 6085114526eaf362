//! PortForward: a URL where connections to the pod's ports will be served.

use proto_cri::v1;

use crate::error::Failure;
use crate::serve::Cri;

pub(crate) async fn port_forward(
    _: &Cri,
    _: v1::PortForwardRequest,
) -> Result<v1::PortForwardResponse, Failure> {
    Err(Failure::Absent("PortForward"))
}
