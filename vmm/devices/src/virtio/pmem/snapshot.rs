//! The state of a region in a saved VM. The content stays in the file.

use serde::{Deserialize, Serialize};

/// A region's place. A restore checks it against the guest's mapping.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PmemSnapshot {
    /// Guest-physical address.
    pub guest_base: u64,
    /// Bytes.
    pub length: u64,
}
