//! The state of the entropy device in a saved VM: nothing, and in particular no random bytes.

use serde::{Deserialize, Serialize};

/// The empty state. It records the device's presence in a saved VM.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RngSnapshot {}
