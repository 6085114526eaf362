//! The state of a region in a saved VM. The content stays in the file.

use serde::{Deserialize, Serialize};

use crate::virtio::DeviceError;

/// A region's place. A restore checks it against the guest's mapping.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PmemSnapshot {
    /// Guest-physical address.
    pub guest_base: u64,
    /// Bytes.
    pub length: u64,
}

impl PmemSnapshot {
    /// Reads a saved device's state.
    ///
    /// # Errors
    /// It is no region's.
    pub fn read(state: &serde_json::Value) -> Result<PmemSnapshot, DeviceError> {
        PmemSnapshot::deserialize(state).map_err(|error| DeviceError {
            device: "pmem",
            message: format!("the saved state is malformed: {error}"),
        })
    }
}
