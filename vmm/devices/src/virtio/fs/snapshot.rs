//! The state of a share in a saved VM.

use serde::{Deserialize, Serialize};

/// The share beyond its queues.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FsSnapshot {
    /// The driver's name for the mount.
    pub tag: String,
    /// The driver had it mounted. It holds numbers of files then, without a meaning to another process.
    pub mounted: bool,
}
