//! The state of a share in a saved VM.

use serde::{Deserialize, Serialize};

/// The share beyond its queues.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FsSnapshot {
    /// The name that the driver mounts it by.
    pub tag: String,
    /// The driver had it mounted, and holds numbers of files then that mean nothing to another process.
    pub mounted: bool,
}
