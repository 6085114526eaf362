//! The sharing of templates among pods.

use serde::{Deserialize, Serialize};

/// The pods of a handler that may start from the same template. They share the random values drawn by the
/// guest's kernel at the template's boot, and read the same pages of the node's memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TemplateScope {
    /// No sharing: each pod's kernel is booted.
    #[default]
    Off,
    /// Pods of one namespace.
    Namespace,
    /// All pods of the node.
    Node,
}
