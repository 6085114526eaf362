//! A pod as the caller asks for it. The module has types only; `check.rs` judges them.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::{Namespaces, PodSecurity, Resources};

/// A pod as asked for. The pod's record keeps the spec for the pod's life, and lists and statuses return it
/// word for word.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct PodSpec {
    /// Kubernetes name.
    pub name: String,
    /// Kubernetes namespace.
    pub namespace: String,
    /// Kubernetes unique id of the pod object.
    pub uid: String,
    /// How often the kubelet has made this pod's sandbox before.
    pub attempt: u32,
    /// Host name inside the pod. Empty: the pod's name.
    pub hostname: String,
    /// Directory on the host for the containers' logs; without it nothing is logged to files.
    pub log_directory: Option<PathBuf>,
    /// Name servers. `None`: the host's `/etc/resolv.conf`.
    pub dns: Option<Dns>,
    /// Ports of the host that lead to the pod.
    pub port_mappings: Vec<PortMapping>,
    /// Labels, returned as they are.
    pub labels: BTreeMap<String, String>,
    /// Annotations, returned as they are.
    pub annotations: BTreeMap<String, String>,
    /// Name of the handler that runs the pod; empty for the default one.
    pub runtime_handler: String,
    /// The host's cgroup that the VMM enters a child of; empty for our own.
    pub cgroup_parent: String,
    /// Kernel settings inside the guest.
    pub sysctls: BTreeMap<String, String>,
    /// Namespaces that the pod's containers use.
    pub namespaces: Namespaces,
    /// Cost of the pod beyond its containers.
    pub overhead: Option<Resources>,
    /// The sum of its containers.
    pub resources: Option<Resources>,
    /// Pod-wide security wishes.
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
    /// The file's text; empty where nothing is asked.
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

/// A port of the host that leads to the pod.
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
    /// `tcp`, `udp` or `sctp`, as CNI's portmap spells it.
    pub fn name(self) -> &'static str {
        match self {
            Protocol::Tcp => "tcp",
            Protocol::Udp => "udp",
            Protocol::Sctp => "sctp",
        }
    }
}
