//! The pods that start from one template.

use serde::{Deserialize, Serialize};

/// The pods of a handler that may start from the same template: they have in common what the guest's kernel drew when the template
/// was booted, and read the same pages of the node's memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TemplateScope {
    /// No two: each pod's kernel is booted.
    #[default]
    Off,
    /// Pods of one namespace.
    Namespace,
    /// All pods of the node.
    Node,
}
