//! The state of a disk in a saved VM. The content stays in the file.

use serde::{Deserialize, Serialize};

/// A disk's state: enough to recognise the same disk at a restore.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BlkSnapshot {
    /// Capacity in sectors of 512 bytes, as the driver read it.
    pub sectors: u64,
    /// True if the disk was read-only for the driver.
    pub read_only: bool,
}
