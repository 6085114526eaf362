//! `PodSandboxConfig` to [`PodSpec`].

use std::net::IpAddr;
use std::path::PathBuf;

use proto_cri::v1;
use runtime_spec::{Dns, PodSpec, PortMapping, Protocol};

use super::{resources, security};
use crate::error::Failure;

/// The requested pod. `handler` is a separate field in `RunPodSandboxRequest`.
pub(crate) fn pod_spec(config: v1::PodSandboxConfig, handler: String) -> Result<PodSpec, Failure> {
    let metadata = config.metadata.ok_or_else(|| Failure::invalid("config.metadata is missing"))?;
    let linux = config.linux.unwrap_or_default();
    let context = linux.security_context.unwrap_or_default();
    Ok(PodSpec {
        name: metadata.name,
        namespace: metadata.namespace,
        uid: metadata.uid,
        attempt: metadata.attempt,
        hostname: config.hostname,
        log_directory: (!config.log_directory.is_empty()).then(|| PathBuf::from(config.log_directory)),
        dns: config.dns_config.map(|dns| Dns {
            servers: dns.servers,
            searches: dns.searches,
            options: dns.options,
        }),
        port_mappings: config.port_mappings.into_iter().map(port_mapping).collect::<Result<_, _>>()?,
        labels: config.labels,
        annotations: config.annotations,
        runtime_handler: handler,
        cgroup_parent: linux.cgroup_parent,
        sysctls: linux.sysctls,
        namespaces: security::namespaces(context.namespace_options.clone().unwrap_or_default())?,
        overhead: linux.overhead.map(resources::resources_in),
        resources: linux.resources.map(resources::resources_in),
        security: security::pod_security(context)?,
    })
}

fn port_mapping(mapping: v1::PortMapping) -> Result<PortMapping, Failure> {
    let port = |field: &str, value: i32| {
        u16::try_from(value)
            .map_err(|_| Failure::invalid(format!("port_mappings.{field}: {value} is no port")))
    };
    // A plugin would map no port for another text. The API server checks none.
    if mapping.host_port != 0 && !mapping.host_ip.is_empty() && mapping.host_ip.parse::<IpAddr>().is_err() {
        let reason = format!("port_mappings.host_ip: {:?} is no IP address", mapping.host_ip);
        return Err(Failure::invalid(reason));
    }
    Ok(PortMapping {
        protocol: match mapping.protocol() {
            v1::Protocol::Tcp => Protocol::Tcp,
            v1::Protocol::Udp => Protocol::Udp,
            v1::Protocol::Sctp => Protocol::Sctp,
        },
        container_port: port("container_port", mapping.container_port)?,
        host_port: port("host_port", mapping.host_port)?,
        host_ip: mapping.host_ip,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config() -> v1::PodSandboxConfig {
        v1::PodSandboxConfig {
            metadata: Some(v1::PodSandboxMetadata {
                name: "web".into(),
                namespace: "default".into(),
                uid: "u-1".into(),
                attempt: 2,
            }),
            ..Default::default()
        }
    }

    #[test]
    fn a_minimal_config_becomes_a_spec() {
        let spec = pod_spec(config(), "kvm".into()).unwrap();
        assert_eq!((spec.name.as_str(), spec.uid.as_str(), spec.attempt), ("web", "u-1", 2));
        assert_eq!(spec.runtime_handler, "kvm");
        assert_eq!(spec.log_directory, None);
        assert_eq!(spec.dns, None);
    }

    #[test]
    fn an_empty_dns_config_is_not_the_same_as_none() {
        let config = v1::PodSandboxConfig { dns_config: Some(v1::DnsConfig::default()), ..config() };
        assert_eq!(pod_spec(config, String::new()).unwrap().dns, Some(Dns::default()));
    }

    #[test]
    fn a_port_out_of_range_is_refused_by_name() {
        let mapping = v1::PortMapping { host_port: 70_000, ..Default::default() };
        let config = v1::PodSandboxConfig { port_mappings: vec![mapping], ..config() };
        let message = pod_spec(config, String::new()).unwrap_err().to_string();
        assert!(message.contains("port_mappings.host_port: 70000"), "{message}");
    }

    #[test]
    fn an_address_of_a_host_port_that_is_none_is_refused_by_name() {
        let of = |host_ip: &str, host_port| {
            let host_ip = host_ip.to_owned();
            let mapping = v1::PortMapping { host_ip, host_port, ..Default::default() };
            let config = v1::PodSandboxConfig { port_mappings: vec![mapping], ..config() };
            pod_spec(config, String::new()).map_err(|refused| refused.to_string())
        };
        for text in ["localhost", "127.0.0.01", "10.0.0.1 ", "10.0.0.1/32", "$(HOST_IP)"] {
            let refused = of(text, 8080).unwrap_err();
            assert!(refused.contains(&format!("port_mappings.host_ip: {text:?}")), "{refused}");
            assert!(of(text, 0).is_ok(), "no port of the node is asked for");
        }
        for text in ["", "0.0.0.0", "127.0.0.1", "::", "fd00::1", "::ffff:10.0.0.1"] {
            of(text, 8080).unwrap();
        }
    }

    #[test]
    fn a_config_without_metadata_is_refused() {
        assert!(pod_spec(v1::PodSandboxConfig::default(), String::new()).is_err());
    }
}
