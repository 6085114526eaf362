//! A pod as requested by the caller. The module has only types; `check.rs` checks them.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::{Namespaces, PodSecurity, Resources};

/// A pod as requested. The pod's record keeps the spec for the pod's life, and lists and statuses return it
/// unchanged.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct PodSpec {
    /// Kubernetes name.
    pub name: String,
    /// Kubernetes namespace.
    pub namespace: String,
    /// Kubernetes unique id of the pod object.
    pub uid: String,
    /// Number of earlier sandboxes created by the kubelet for this pod.
    pub attempt: u32,
    /// Host name inside the pod. Empty: the pod's name.
    pub hostname: String,
    /// Directory on the host for the containers' logs. Without it nothing is logged to files.
    pub log_directory: Option<PathBuf>,
    /// Name servers. `None`: the host's, as far as a guest can reach them ([`crate::HostResolvConf`]).
    pub dns: Option<Dns>,
    /// Ports of the host forwarded to the pod.
    pub port_mappings: Vec<PortMapping>,
    /// Labels, returned as they are.
    pub labels: BTreeMap<String, String>,
    /// Annotations, returned as they are.
    pub annotations: BTreeMap<String, String>,
    /// Name of the pod's handler. Empty for the default one.
    pub runtime_handler: String,
    /// The parent cgroup on the host for the VMM's cgroup. Empty for our own.
    pub cgroup_parent: String,
    /// Kernel settings inside the guest.
    pub sysctls: BTreeMap<String, String>,
    /// Namespaces of the pod's containers.
    pub namespaces: Namespaces,
    /// Cost of the pod beyond its containers.
    pub overhead: Option<Resources>,
    /// The sum of its containers.
    pub resources: Option<Resources>,
    /// Pod-wide security requests.
    pub security: PodSecurity,
}

/// Contents of the pod's `/etc/resolv.conf`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Dns {
    /// One `nameserver` line each.
    pub servers: Vec<String>,
    /// The `search` line.
    pub searches: Vec<String>,
    /// The `options` line.
    pub options: Vec<String>,
}

impl Dns {
    /// The file's text. Empty without a request.
    pub fn resolv_conf(&self) -> String {
        let mut text = String::new();
        if !self.searches.is_empty() {
            text += &format!("search {}\n", self.searches.join(" "));
        }
        for server in &self.servers {
            text += &format!("nameserver {server}\n");
        }
        if !self.options.is_empty() {
            text += &format!("options {}\n", self.options.join(" "));
        }
        text
    }
}

/// A port of the host forwarded to the pod.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct PortMapping {
    /// TCP, UDP or SCTP.
    pub protocol: Protocol,
    /// Port inside the pod.
    pub container_port: u16,
    /// Port of the host; 0 for none.
    pub host_port: u16,
    /// Address of the host, or empty for all.
    pub host_ip: String,
}

/// Transport protocol of a port mapping.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[allow(missing_docs)]
pub enum Protocol {
    #[default]
    Tcp,
    Udp,
    Sctp,
}

impl Protocol {
    /// `tcp`, `udp` or `sctp`, as in CNI's portmap.
    pub fn name(self) -> &'static str {
        match self {
            Protocol::Tcp => "tcp",
            Protocol::Udp => "udp",
            Protocol::Sctp => "sctp",
        }
    }
}
