//! The network of the pod of `podvisor run`: its name, published ports, name servers and sysctls.

use std::net::IpAddr;
use std::ops::RangeInclusive;
use std::path::Path;

use anyhow::{Context, ensure};
use proto_cri::v1;
use runtime_spec::{HostResolvConf, RESOLV_CONF, RESOLVED_CONF};

/// Most published ports of one argument.
const RANGE_MAX: u16 = 1024;

/// Longest host name, in bytes (Linux, `HOST_NAME_MAX`, with room for a pod's suffix).
const HOSTNAME_BYTES_MAX: usize = 63;

/// Arguments for the network.
#[derive(Debug, clap::Args)]
pub(super) struct NetworkArgs {
    /// Port of the node, as one of the container. Both may be ranges. May be repeated.
    #[arg(short, long, value_name = "[IP:]PORT:PORT[/PROTOCOL]", value_parser = parse_ports)]
    publish: Vec<Published>,
    /// Host name of the pod. By default the pod's name.
    #[arg(long, value_name = "NAME")]
    hostname: Option<String>,
    /// Network of the pod. The CNI configuration chooses it, and bridge is another word for that.
    #[arg(long = "network", value_name = "bridge", value_parser = parse_network)]
    _network: Option<String>,
    /// Name server. May be repeated. By default the node's.
    #[arg(long, value_name = "IP")]
    dns: Vec<IpAddr>,
    /// Domain to search names in. May be repeated.
    #[arg(long, value_name = "DOMAIN")]
    dns_search: Vec<String>,
    /// Option of resolv.conf. May be repeated.
    #[arg(long, value_name = "OPTION")]
    dns_option: Vec<String>,
    /// Kernel setting of the pod. May be repeated.
    #[arg(long, value_name = "NAME=VALUE", value_parser = parse_sysctl)]
    sysctl: Vec<(String, String)>,
}

/// Ports published by one argument.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Published(Vec<v1::PortMapping>);

impl NetworkArgs {
    pub(super) fn port_mappings(&self) -> Vec<v1::PortMapping> {
        self.publish.iter().flat_map(|published| published.0.iter().cloned()).collect()
    }

    pub(super) fn sysctls(&self) -> std::collections::BTreeMap<String, String> {
        self.sysctl.iter().cloned().collect()
    }

    /// The given host name, or one made of the pod's name.
    pub(super) fn hostname(&self, pod: &str) -> String {
        let of_pod = || {
            let name: String = pod.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '-' }).collect();
            name.chars()
                .take(HOSTNAME_BYTES_MAX)
                .collect::<String>()
                .trim_end_matches('-')
                .to_ascii_lowercase()
        };
        self.hostname.clone().unwrap_or_else(of_pod)
    }

    /// The pod's name servers. `None` for the node's, read by the daemon. `node` has the node's files: their
    /// servers are used with given domains and options.
    ///
    /// # Errors
    /// The node's files are needed and cannot be read, or have no server that a pod can reach.
    pub(super) fn dns(&self, node: NodeNames<'_>) -> anyhow::Result<Option<v1::DnsConfig>> {
        if self.dns.is_empty() && self.dns_search.is_empty() && self.dns_option.is_empty() {
            return Ok(None);
        }
        let mut servers: Vec<String> = self.dns.iter().map(IpAddr::to_string).collect();
        if servers.is_empty() {
            let place = node.resolv_conf.display();
            let found = node.reachable()?;
            ensure!(!found.is_cut_off(), "{}", cut_off(&found));
            ensure!(!found.servers.is_empty(), "{place} has no name server; --dns gives one");
            servers = found.servers;
        }
        let (searches, options) = (self.dns_search.clone(), self.dns_option.clone());
        Ok(Some(v1::DnsConfig { servers, searches, options }))
    }
}

/// The node's files with its name servers.
#[derive(Clone, Copy, Debug)]
pub(super) struct NodeNames<'a> {
    resolv_conf: &'a Path,
    /// The servers behind the stub of systemd-resolved.
    resolved_conf: &'a Path,
}

impl NodeNames<'_> {
    /// The files as Linux and systemd place them.
    pub(super) fn of_this_node() -> NodeNames<'static> {
        NodeNames { resolv_conf: Path::new(RESOLV_CONF), resolved_conf: Path::new(RESOLVED_CONF) }
    }

    /// A warning if the node has name servers, but none that a pod can reach. The daemon decides by itself:
    /// an unreadable file is its matter.
    pub(super) fn warning(self) -> Option<String> {
        self.reachable().ok().filter(HostResolvConf::is_cut_off).map(|found| cut_off(&found))
    }

    fn reachable(self) -> anyhow::Result<HostResolvConf> {
        let host = std::fs::read(self.resolv_conf).with_context(|| self.resolv_conf.display().to_string())?;
        let resolved = || match std::fs::read(self.resolved_conf) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(Vec::new()),
            read => read.with_context(|| self.resolved_conf.display().to_string()),
        };
        HostResolvConf::reachable(&host, resolved)
    }
}

fn cut_off(found: &HostResolvConf) -> String {
    format!(
        "the node's name servers ({}) are on its loopback, and a pod cannot reach them; --dns gives one",
        found.unreachable.join(", ")
    )
}

fn parse_network(text: &str) -> Result<String, String> {
    match text {
        "bridge" | "default" => Ok(text.to_owned()),
        "host" => Err("a pod has a VM and a network of its own, and cannot use the node's".into()),
        "none" => Err("CRI has no pods without a network".into()),
        _ => Err("the node's CNI configuration chooses the network, and no name does".into()),
    }
}

fn parse_sysctl(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((name, value)) if !name.is_empty() => Ok((name.to_owned(), value.to_owned())),
        _ => Err("a setting is NAME=VALUE".into()),
    }
}

fn parse_ports(text: &str) -> Result<Published, String> {
    let (ports, protocol) = text.split_once('/').unwrap_or((text, "tcp"));
    let protocol = match protocol.to_ascii_lowercase().as_str() {
        "tcp" => v1::Protocol::Tcp,
        "udp" => v1::Protocol::Udp,
        "sctp" => v1::Protocol::Sctp,
        other => return Err(format!("the protocol {other:?} is none of tcp, udp and sctp")),
    };
    let (rest, container) = ports
        .rsplit_once(':')
        .ok_or("a port of the node is missing, as in 8080:80: none is chosen by itself")?;
    let (ip, host) = match rest.rsplit_once(':') {
        Some((ip, host)) => (address(ip)?, host),
        None => (String::new(), rest),
    };
    let (host, container) = (range(host)?, range(container)?);
    if host.len() != container.len() {
        return Err(format!("{} ports of the node are not {} of the container", host.len(), container.len()));
    }
    let mapping = |(host, container)| v1::PortMapping {
        protocol: protocol.into(),
        container_port: i32::from(container),
        host_port: i32::from(host),
        host_ip: ip.clone(),
    };
    Ok(Published(host.zip(container).map(mapping).collect()))
}

fn address(text: &str) -> Result<String, String> {
    let bare = text.strip_prefix('[').and_then(|text| text.strip_suffix(']')).unwrap_or(text);
    bare.parse::<IpAddr>().map(|ip| ip.to_string()).map_err(|_| format!("{text:?} is no address"))
}

/// The ports `80` or `80-90`.
fn range(text: &str) -> Result<RangeInclusive<u16>, String> {
    let wrong = || format!("{text:?} is no port from 1 to 65535 and no range of them");
    let number = |text: &str| text.parse::<u16>().ok().filter(|port| *port > 0);
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    let (first, last) = (number(first).ok_or_else(wrong)?, number(last).ok_or_else(wrong)?);
    match last.checked_sub(first) {
        Some(more) if more < RANGE_MAX => Ok(first..=last),
        Some(_) => Err(format!("more than {RANGE_MAX} ports in one range")),
        None => Err(wrong()),
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::parsed;
    use super::*;

    fn published(text: &str) -> Result<Vec<(String, i32, i32, v1::Protocol)>, String> {
        let mappings = parsed(&["-p", text, "image"])?.network.port_mappings();
        let parts =
            |one: v1::PortMapping| (one.host_ip.clone(), one.host_port, one.container_port, one.protocol());
        Ok(mappings.into_iter().map(parts).collect())
    }

    #[test]
    fn ports_are_published_one_by_one_and_in_ranges() {
        use v1::Protocol::{Sctp, Tcp, Udp};
        let none = String::new();
        assert_eq!(published("8080:80").unwrap(), [(none.clone(), 8080, 80, Tcp)]);
        assert_eq!(published("127.0.0.1:53:5353/udp").unwrap(), [("127.0.0.1".into(), 53, 5353, Udp)]);
        assert_eq!(published("[::1]:1:2/SCTP").unwrap(), [("::1".into(), 1, 2, Sctp)]);
        assert_eq!(published("8000-8001:90-91").unwrap()[1], (none, 8001, 91, Tcp));
    }

    #[test]
    fn what_is_no_port_is_refused_with_the_reason() {
        for (text, why) in [
            ("80", "as in 8080:80"),
            (":80", "is no port"),
            ("0:80", "is no port"),
            ("65536:80", "is no port"),
            ("80:http", "is no port"),
            ("9-1:9-1", "is no port"),
            ("1-9:1", "9 ports of the node are not 1 of the container"),
            ("1-2000:1-2000", "more than 1024"),
            ("host:1:1", "is no address"),
            ("1:1/icmp", "none of tcp"),
        ] {
            let said = published(text).unwrap_err();
            assert!(said.contains(why), "{text}: {said}");
        }
    }

    #[test]
    fn the_nodes_servers_stay_with_ones_own_domains() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("resolv.conf");
        std::fs::write(&file, "# x\nsearch a.example\nnameserver 192.0.2.1\nnameserver\t192.0.2.2\n")
            .unwrap();
        let node = NodeNames { resolv_conf: &file, resolved_conf: &dir.path().join("resolved.conf") };
        let dns = |arguments: &[&str]| parsed(arguments).unwrap().network.dns(node);
        assert_eq!(dns(&["image"]).unwrap(), None);
        let found = dns(&["--dns-search", "b.example", "--dns-option", "ndots:2", "image"]).unwrap().unwrap();
        assert_eq!(found.servers, ["192.0.2.1", "192.0.2.2"]);
        assert_eq!((found.searches, found.options), (vec!["b.example".into()], vec!["ndots:2".into()]));
        assert_eq!(dns(&["--dns", "192.0.2.9", "image"]).unwrap().unwrap().servers, ["192.0.2.9"]);
        assert_eq!(node.warning(), None);
        std::fs::write(&file, "nameserver 127.0.0.53\n").unwrap();
        let said = dns(&["--dns-search", "b", "image"]).unwrap_err().to_string();
        assert!(said.contains("(127.0.0.53) are on its loopback"), "{said}");
        assert_eq!(node.warning(), Some(said));
        std::fs::write(node.resolved_conf, "nameserver 192.0.2.3\n").unwrap();
        assert_eq!(dns(&["--dns-search", "b", "image"]).unwrap().unwrap().servers, ["192.0.2.3"]);
        assert_eq!(node.warning(), None);
        std::fs::write(&file, "").unwrap();
        assert!(dns(&["--dns-search", "b", "image"]).unwrap_err().to_string().contains("--dns gives one"));
        assert!(parsed(&["--dns", "router", "image"]).is_err());
    }

    #[test]
    fn networks_that_a_pod_cannot_have_are_refused_with_the_reason() {
        parsed(&["--network", "bridge", "image"]).unwrap();
        for (network, why) in [("host", "network of its own"), ("none", "no pods without"), ("mine", "CNI")] {
            let said = parsed(&["--network", network, "image"]).unwrap_err();
            assert!(said.contains(why), "{said}");
        }
    }

    #[test]
    fn a_host_name_is_made_of_the_pods_name() {
        let hostname = |arguments: &[&str], pod: &str| parsed(arguments).unwrap().network.hostname(pod);
        assert_eq!(hostname(&["image"], "Web_1.a"), "web-1-a");
        assert_eq!(hostname(&["image"], &"x".repeat(100)).len(), 63);
        assert_eq!(hostname(&["--hostname", "db", "image"], "web"), "db");
    }

    #[test]
    fn a_sysctl_has_a_name_and_a_value() {
        let args = parsed(&["--sysctl", "net.core.somaxconn=512", "image"]).unwrap();
        assert_eq!(args.network.sysctls(), [("net.core.somaxconn".into(), "512".into())].into());
        assert!(parsed(&["--sysctl", "kernel.x", "image"]).unwrap_err().contains("NAME=VALUE"));
    }
}
