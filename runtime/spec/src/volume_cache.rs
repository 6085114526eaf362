//! What guests keep of volumes that they reach on the node, as a handler chooses it. Pure; the VMM does it.

use serde::{Deserialize, Serialize};

/// What a guest keeps of the files of volumes on the node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum VolumeCache {
    /// Nothing: each read and write of a program goes to the node.
    None,
    /// What a file holds, as long as its size and times on the node are the same.
    #[default]
    Auto,
    /// All of it, also names and attributes, as if nobody else changed the files.
    Always,
}
