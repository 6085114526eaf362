//! The state of the entropy device in a saved VM: nothing, and above all no random bytes.

use serde::{Deserialize, Serialize};

/// The empty state, so that a saved VM shows that the device was there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RngSnapshot {}
