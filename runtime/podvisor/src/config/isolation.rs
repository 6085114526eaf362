//! `[isolation]`: the separation of pods from the node and from each other. `tenancy.rs` has the changes
//! elsewhere in the file for hostile tenants.

use serde::{Deserialize, Serialize};

/// The section.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Isolation {
    pub(crate) tenancy: Tenancy,
    pub(crate) walls: Walls,
}

/// Whose pods the node runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Tenancy {
    Trusted,
    Hostile,
}

/// The treatment of pods if the node's kernel lacks a wall around their VMMs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Walls {
    Report,
    Require,
}

impl Default for Isolation {
    fn default() -> Self {
        Isolation { tenancy: Tenancy::Trusted, walls: Walls::Report }
    }
}

impl Isolation {
    /// Returns true if the node runs pods of hostile tenants.
    pub(super) fn is_hostile(&self) -> bool {
        self.tenancy == Tenancy::Hostile
    }
}
