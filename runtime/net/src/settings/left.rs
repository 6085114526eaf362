//! The settings left by plugins in a namespace, each with its plugin. Owns the types only.

use super::{nft::TableMessages, setting::Setting};

/// The settings left by plugins in a namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Left {
    /// The sysctls, ordered: a sysctl setting others comes before them.
    pub(crate) sysctls: Vec<PodSysctl>,
    /// Settings other than sysctls, each with the first plugin after which it was found.
    pub(crate) settings: Vec<(Setting, String)>,
    /// For each nftables table, in the kernel's order, the messages to recreate it elsewhere, or the reason
    /// for having none. Empty unless asked for.
    pub(crate) tables: Vec<TableMessages>,
    /// The error, if the namespace could not be read.
    pub(crate) unread: Option<String>,
}

/// A sysctl left by a plugin.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PodSysctl {
    /// The path below `/proc/sys`, with `/` between its parts.
    pub path: String,
    /// The value.
    pub value: String,
    /// The plugin's name.
    pub plugin: String,
}
