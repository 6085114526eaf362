//! What is kept of a disk when its VM is saved. The content is the file's affair.

use serde::{Deserialize, Serialize};

/// A disk's state: enough to see that the same disk is put back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BlkState {
    /// Sectors of 512 bytes that the driver was told.
    pub sectors: u64,
    /// Whether the driver was told that it may not write.
    pub read_only: bool,
}
