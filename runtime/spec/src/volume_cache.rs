//! A handler's choice of the guests' cache for volumes on the node. Pure; the VMM does the work.

use serde::{Deserialize, Serialize};

/// The cache of a guest for files of volumes on the node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum VolumeCache {
    /// Only files mapped by a program. Each read and write of a program goes to the node.
    #[default]
    None,
    /// The content of a file, as long as its size and times on the node are unchanged. Each read checks them.
    Auto,
    /// Everything, also names and attributes, as if only this guest changed the files.
    Always,
}
