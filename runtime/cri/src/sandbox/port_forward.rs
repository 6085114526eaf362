//! PortForward: returns a URL for connections to the pod's ports. The client names a port with each
//! connection. The ports of the request are only for older WebSocket clients. Those are not supported.

use std::sync::Arc;

use proto_cri::v1;

use crate::error::Failure;
use crate::serve::Cri;
use crate::sessions::Ports;
use crate::subject;

pub(crate) async fn port_forward(
    cri: &Cri,
    request: v1::PortForwardRequest,
) -> Result<v1::PortForwardResponse, Failure> {
    let pod_id = request.pod_sandbox_id;
    subject::pod(&cri.pods, &pod_id);
    cri.pods.check_ready(&pod_id)?;
    let session = Ports { pods: cri.pods.clone(), pod_id };
    Ok(v1::PortForwardResponse { url: cri.streaming.forward(Arc::new(session))? })
}
