//! The values that a plugin is started with.

use std::path::PathBuf;

use crate::ResourceName;

/// The plugin's configuration.
#[derive(Clone, Debug)]
pub struct Config {
    /// The kubelet's directory of plugins, with its socket `kubelet.sock`. The plugin does not make it.
    pub directory: PathBuf,
    /// The kubelet's pod-resources socket, which says what pods hold while memory is short.
    pub pod_resources: PathBuf,
    /// Name of the resource.
    pub resource: ResourceName,
    /// Number of VMs that the node holds, 1..=[`VMS_MAX`](crate::VMS_MAX).
    pub vms: u16,
    /// Memory in bytes that one more VM takes on the node.
    pub vm_bytes: u64,
}
