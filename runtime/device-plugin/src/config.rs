//! The plugin's configuration at its start.

use std::path::PathBuf;

use crate::ResourceName;

/// The plugin's configuration.
#[derive(Clone, Debug)]
pub struct Config {
    /// The kubelet's directory of plugins, with its socket `kubelet.sock`. The plugin does not create it.
    pub directory: PathBuf,
    /// The kubelet's pod-resources socket. It lists the devices held by pods while memory is short.
    pub pod_resources: PathBuf,
    /// Name of the resource.
    pub resource: ResourceName,
    /// Number of VMs on the node, 1..=[`VMS_MAX`](crate::VMS_MAX).
    pub vms: u16,
    /// Memory in bytes for one more VM on the node.
    pub vm_bytes: u64,
}
