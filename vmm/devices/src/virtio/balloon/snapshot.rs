//! The state of the balloon in a saved VM: nothing, because it is always empty.

use serde::{Deserialize, Serialize};

/// The empty state. It records the device's presence in a saved VM.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BalloonSnapshot {}
