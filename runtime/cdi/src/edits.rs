//! Edits: changes to a container that a device stands for, as a file asks for them. Plain values, without any logic.

use std::fmt;
use std::path::Path;
use std::sync::Arc;

use crate::name::DeviceName;
use crate::node::Found;

/// Edits that belong together: those of one device, or those that a file makes for each of its devices.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Edits {
    /// Variables, in order.
    pub env: Vec<(String, String)>,
    /// Device nodes.
    pub device_nodes: Vec<DeviceNode>,
    /// Mounts.
    pub mounts: Vec<Mount>,
    /// Programs of the node that are to run in the container's life.
    pub hooks: Vec<Hook>,
    /// Groups for the container's process. 0 is left out, as the specification has it.
    pub additional_gids: Vec<u32>,
    /// Whether a class of the processor's caches or memory bandwidth is asked for.
    pub intel_rdt: bool,
    /// Interfaces of the node that are to move into the container, by their names on the node.
    pub net_devices: Vec<String>,
}

/// The source of edits, for messages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Origin {
    /// The device that was asked for.
    pub device: DeviceName,
    /// The file that defines the device.
    pub file: Arc<Path>,
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CDI device {} of {}", self.device, self.file.display())
    }
}

/// A device node in the container.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceNode {
    /// In the container.
    pub path: String,
    /// On the node.
    pub host_path: String,
    /// The kind that the file names.
    pub kind: Option<NodeKind>,
    /// Major and minor number, where the file names them.
    pub numbers: Option<(i64, i64)>,
    /// Mode of the node in the container.
    pub file_mode: Option<u32>,
    /// Some of `rwm`; empty where the file asks for none.
    pub permissions: String,
    /// Owner of the node in the container, as the container has users.
    pub uid: Option<u32>,
    /// Group of the node in the container.
    pub gid: Option<u32>,
    /// The node's own file at `host_path` when the device was resolved.
    pub found: Found,
}

/// The kind of a device node that a file names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NodeKind {
    /// `b`
    Block,
    /// `c` or `u`
    Character,
    /// `p`
    Pipe,
}

/// A mount in the container.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mount {
    /// On the node, or a name where the file system is none of the node's.
    pub host_path: String,
    /// In the container.
    pub container_path: String,
    /// Type of the file system; empty where the file names none.
    pub kind: String,
    /// Options of the mount.
    pub options: Vec<String>,
}

/// A program of the node that is to run in the container's life.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hook {
    /// The moment, as the OCI runtime specification names it.
    pub name: String,
    /// The program.
    pub path: String,
}
