//! The state of a disk in a saved VM. The content stays in the file.

use serde::{Deserialize, Serialize};

/// A disk's state: enough to see that the same disk is put back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BlkSnapshot {
    /// Capacity in sectors of 512 bytes, as the driver read it.
    pub sectors: u64,
    /// Whether the driver read that it may not write.
    pub read_only: bool,
}
