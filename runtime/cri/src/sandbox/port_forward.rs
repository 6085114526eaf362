//! PortForward: returns a URL for connections to the pod's ports. The client names a port with each
//! connection. Only clients over WebSocket channels cannot. They get a connection to each port of the
//! request.

use std::sync::Arc;

use proto_cri::v1;
use runtime_streaming::FORWARD_PORTS_MAX;

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
    let ports = ports(&request.port)?;
    cri.pods.check_ready(&pod_id)?;
    let session = Ports { pods: cri.pods.clone(), pod_id, ports };
    Ok(v1::PortForwardResponse { url: cri.streaming.forward(Arc::new(session))? })
}

fn ports(asked: &[i32]) -> Result<Vec<u16>, Failure> {
    if asked.len() > FORWARD_PORTS_MAX {
        return Err(Failure::invalid(format!("port has more than {FORWARD_PORTS_MAX} ports")));
    }
    let parse = |port: &i32| u16::try_from(*port).ok().filter(|port| *port > 0);
    asked
        .iter()
        .map(|port| parse(port).ok_or_else(|| Failure::invalid(format!("port: {port} is no port"))))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ports_of_a_request_are_bounded_and_valid() {
        assert_eq!(ports(&[80, 65_535]).unwrap(), [80, 65_535]);
        for bad in [0, -1, 65_536] {
            assert!(ports(&[bad]).unwrap_err().to_string().contains(&bad.to_string()));
        }
        ports(&[80; FORWARD_PORTS_MAX]).unwrap();
        ports(&[80; FORWARD_PORTS_MAX + 1]).unwrap_err();
    }
}
