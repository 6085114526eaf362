//! Ports of the node published by pods of `podvisor run`. The plugin for host ports gives a port to each pod
//! that asks for it: a later one is never reached, and a program of the node loses its clients. A kubelet's
//! scheduler knows its pods' ports; here nobody else compares them.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, TcpListener, UdpSocket};

use anyhow::{Context, bail};
use proto_cri::v1;

/// Annotation with a pod's published ports, as in `8080/tcp 127.0.0.1:53/udp`.
pub(super) const PUBLISHED_PORTS: &str = "podvisor.io/published-ports";

/// A port of the node.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Port {
    /// None for all addresses of the node.
    address: Option<IpAddr>,
    number: u16,
    protocol: v1::Protocol,
}

impl Port {
    fn of(mapping: &v1::PortMapping) -> Option<Port> {
        let number = u16::try_from(mapping.host_port).ok()?;
        let address = mapping.host_ip.parse().ok().filter(|address: &IpAddr| !address.is_unspecified());
        Some(Port { address, number, protocol: mapping.protocol() })
    }

    /// A port of the annotation. Another version may have written something else there.
    fn parse(text: &str) -> Option<Port> {
        let (place, protocol) = text.rsplit_once('/')?;
        let protocol = v1::Protocol::from_str_name(&protocol.to_ascii_uppercase())?;
        let (address, number) = match place.rsplit_once(':') {
            Some((address, number)) => (Some(address.parse().ok()?), number),
            None => (None, place),
        };
        Some(Port { address, number: number.parse().ok()?, protocol })
    }

    fn overlaps(self, other: Port) -> bool {
        let either_has_all = self.address.is_none() || other.address.is_none();
        (self.number, self.protocol) == (other.number, other.protocol)
            && (either_has_all || self.address == other.address)
    }

    /// # Errors
    /// A program of the node has the port, or the node lacks the address.
    fn check_free(self) -> std::io::Result<()> {
        let place = (self.address.unwrap_or(Ipv4Addr::UNSPECIFIED.into()), self.number);
        match self.protocol {
            v1::Protocol::Tcp => TcpListener::bind(place).map(drop),
            v1::Protocol::Udp => UdpSocket::bind(place).map(drop),
            // Few kernels have it loaded.
            v1::Protocol::Sctp => Ok(()),
        }
    }
}

impl fmt::Display for Port {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(address) = self.address {
            write!(f, "{address}:")?;
        }
        write!(f, "{}/{}", self.number, self.protocol.as_str_name().to_ascii_lowercase())
    }
}

/// The annotation of a pod with these ports, if it has any.
pub(super) fn annotation(mappings: &[v1::PortMapping]) -> Option<(String, String)> {
    let ports: Vec<String> = mappings.iter().filter_map(Port::of).map(|port| port.to_string()).collect();
    (!ports.is_empty()).then(|| (PUBLISHED_PORTS.to_owned(), ports.join(" ")))
}

/// Checks that no other pod of these and no program of the node has one of the ports.
///
/// # Errors
/// One is taken, or given twice.
pub(super) fn check(mappings: &[v1::PortMapping], pods: &[v1::PodSandbox]) -> anyhow::Result<()> {
    let asked: Vec<Port> = mappings.iter().filter_map(Port::of).collect();
    for (index, port) in asked.iter().enumerate() {
        if asked[..index].iter().any(|earlier| earlier.overlaps(*port)) {
            bail!("port {port} of this node is published twice");
        }
        for pod in pods.iter().filter(|pod| pod.state() == v1::PodSandboxState::SandboxReady) {
            let theirs = pod.annotations.get(PUBLISHED_PORTS).map(String::as_str).unwrap_or_default();
            if theirs.split(' ').filter_map(Port::parse).any(|other| other.overlaps(*port)) {
                let name = pod.metadata.as_ref().map(|pod| pod.name.as_str()).unwrap_or_default();
                bail!("port {port} of this node leads to the pod {name}; `podvisor stop {name}` ends that");
            }
        }
        port.check_free().with_context(|| format!("port {port} of this node cannot be published"))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mapping(host_ip: &str, port: u16, protocol: v1::Protocol) -> v1::PortMapping {
        v1::PortMapping {
            host_ip: host_ip.into(),
            host_port: port.into(),
            container_port: 80,
            protocol: protocol.into(),
        }
    }

    fn pod(state: v1::PodSandboxState, ports: &[v1::PortMapping]) -> v1::PodSandbox {
        v1::PodSandbox {
            metadata: Some(v1::PodSandboxMetadata { name: "web".into(), ..Default::default() }),
            state: state.into(),
            annotations: annotation(ports).into_iter().collect(),
            ..Default::default()
        }
    }

    #[test]
    fn a_port_of_another_pod_is_refused_by_its_name_while_that_pod_runs() {
        use v1::PodSandboxState::{SandboxNotready, SandboxReady};
        use v1::Protocol::{Sctp, Tcp, Udp};
        // SCTP, as its ports are compared with pods alone.
        let theirs = [mapping("", 1, Sctp), mapping("192.0.2.1", 8080, Sctp)];
        let said =
            |mine, state| check(&[mine], &[pod(state, &theirs)]).map_err(|refused| refused.to_string()).err();
        let taken = said(mapping("127.0.0.1", 1, Sctp), SandboxReady).unwrap();
        assert_eq!(
            taken,
            "port 127.0.0.1:1/sctp of this node leads to the pod web; `podvisor stop web` ends that"
        );
        for mine in
            [mapping("", 8080, Sctp), mapping("0.0.0.0", 8080, Sctp), mapping("192.0.2.1", 8080, Sctp)]
        {
            assert!(said(mine.clone(), SandboxReady).is_some(), "{mine:?}");
            assert_eq!(said(mine, SandboxNotready), None);
        }
        for mine in [mapping("192.0.2.2", 8080, Sctp), mapping("", 2, Sctp)] {
            assert_eq!(said(mine, SandboxReady), None);
        }
        assert_eq!(
            check(&[], &[pod(SandboxReady, &[mapping("", 3, Tcp), mapping("::1", 4, Udp)])]).ok(),
            Some(())
        );
    }

    #[test]
    fn a_port_of_a_program_of_the_node_is_refused() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let datagrams = UdpSocket::bind("127.0.0.1:0").unwrap();
        let (tcp, udp) = (listener.local_addr().unwrap().port(), datagrams.local_addr().unwrap().port());
        for taken in [mapping("", tcp, v1::Protocol::Tcp), mapping("127.0.0.1", udp, v1::Protocol::Udp)] {
            let said = format!("{:#}", check(&[taken], &[]).unwrap_err());
            assert!(said.contains("cannot be published: Address already in use"), "{said}");
        }
        drop((listener, datagrams));
        check(&[mapping("127.0.0.1", tcp, v1::Protocol::Tcp)], &[]).unwrap();
    }

    #[test]
    fn a_port_given_twice_is_refused() {
        let twice = [mapping("", 5, v1::Protocol::Sctp), mapping("::1", 5, v1::Protocol::Sctp)];
        assert_eq!(
            check(&twice, &[]).unwrap_err().to_string(),
            "port ::1:5/sctp of this node is published twice"
        );
    }

    #[test]
    fn the_annotation_is_read_as_it_is_written() {
        let ports = [mapping("::1", 6, v1::Protocol::Udp), mapping("::", 7, v1::Protocol::Tcp)];
        let (_, text) = annotation(&ports).unwrap();
        assert_eq!(text, "::1:6/udp 7/tcp");
        let read: Vec<String> =
            text.split(' ').filter_map(Port::parse).map(|port| port.to_string()).collect();
        assert_eq!(read.join(" "), text);
        assert!(annotation(&[]).is_none() && Port::parse("80").is_none() && Port::parse("").is_none());
    }
}
