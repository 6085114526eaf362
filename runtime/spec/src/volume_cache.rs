//! The cache of guests for volumes that they reach on the node, as a handler chooses it. Pure; the VMM does the work.

use serde::{Deserialize, Serialize};

/// The cache of a guest for files of volumes on the node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum VolumeCache {
    /// Nothing but what a program maps: each read and write of a program goes to the node.
    #[default]
    None,
    /// The content of a file, as long as its size and times on the node are the same, which each read asks for.
    Auto,
    /// All of it, also names and attributes, as if nobody else changed the files.
    Always,
}
