//! Edits: the changes to a container for a device, as requested by a file. Plain values without logic.

use std::fmt;
use std::path::Path;
use std::sync::Arc;

use crate::name::DeviceName;
use crate::node::Found;

/// A group of edits: those of one device, or those common to a file's devices.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Edits {
    /// Variables, in order.
    pub env: Vec<(String, String)>,
    /// Device nodes.
    pub device_nodes: Vec<DeviceNode>,
    /// Mounts.
    pub mounts: Vec<Mount>,
    /// Programs of the node to run during the container's life.
    pub hooks: Vec<Hook>,
    /// Groups for the container's process. 0 is left out, as the specification says.
    pub additional_gids: Vec<u32>,
    /// True if the file requests a class of CPU cache or memory bandwidth (Intel RDT).
    pub intel_rdt: bool,
    /// Interfaces to move into the container, by their names on the node.
    pub net_devices: Vec<String>,
}

/// The source of edits, for messages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Origin {
    /// The requested device.
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
    /// The kind named in the file.
    pub kind: Option<NodeKind>,
    /// Major and minor number, if the file names them.
    pub numbers: Option<(i64, i64)>,
    /// Mode of the node in the container.
    pub file_mode: Option<u32>,
    /// Some of `rwm`. Empty if the file requests none.
    pub permissions: String,
    /// Owner of the node in the container, by the container's numbering of users.
    pub uid: Option<u32>,
    /// Group of the node in the container.
    pub gid: Option<u32>,
    /// The node's own file at `host_path` when the device was resolved.
    pub found: Found,
}

/// The kind of a device node, as named in a file.
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
    /// Path on the node, or a name if the file system does not come from the node.
    pub host_path: String,
    /// In the container.
    pub container_path: String,
    /// Type of the file system. Empty if the file names none.
    pub kind: String,
    /// Options of the mount.
    pub options: Vec<String>,
}

/// A program of the node to run during the container's life.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hook {
    /// The hook's stage, as named by the OCI runtime specification.
    pub name: String,
    /// The program.
    pub path: String,
}
