//! What is kept of a region when its VM is saved. The content is the file's affair.

use serde::{Deserialize, Serialize};

/// A region's place, to see that it is put back where the guest has it mapped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PmemState {
    /// Guest-physical address.
    pub guest_base: u64,
    /// Bytes.
    pub length: u64,
}
