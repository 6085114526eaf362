//! The state of the device in a saved VM. The memory's content is saved with the VM's RAM.

use serde::{Deserialize, Serialize};

/// The region, its requested size, and its plugged blocks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MemSnapshot {
    /// Guest-physical address.
    pub base: u64,
    /// Bytes.
    pub length: u64,
    /// Bytes usable by the driver, from the base.
    pub usable: u64,
    /// Bytes requested from the driver.
    pub requested: u64,
    /// Plugged ranges: (first block, blocks).
    pub plugged: Vec<(usize, usize)>,
}
