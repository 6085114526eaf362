//! The state of the device in a saved VM. The memory's content is saved with the VM's RAM.

use serde::{Deserialize, Serialize};

/// The region, what is asked of it, and what is plugged.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MemSnapshot {
    /// Guest-physical address.
    pub base: u64,
    /// Bytes.
    pub length: u64,
    /// Bytes that the driver may use, from the base.
    pub usable: u64,
    /// Bytes that it should plug.
    pub requested: u64,
    /// Plugged ranges: (first block, blocks).
    pub plugged: Vec<(usize, usize)>,
}
