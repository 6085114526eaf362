//! The state of the balloon in a saved VM: nothing, since it is always empty.

use serde::{Deserialize, Serialize};

/// The empty state, so that a saved VM shows that the device was there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BalloonSnapshot {}
