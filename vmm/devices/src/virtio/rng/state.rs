//! What is kept of the entropy device when its VM is saved: nothing, and above all no random bytes.

use serde::{Deserialize, Serialize};

/// The empty state, so that a saved VM tells that the device was there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RngState {}
