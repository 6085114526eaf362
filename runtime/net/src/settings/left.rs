//! The settings that plugins left in a namespace, each with its plugin. Owns the types only.

use super::{nft::TableMessages, setting::Setting};

/// The settings that plugins left in a namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Left {
    /// Ordered so that a sysctl which sets others comes before them.
    pub(crate) sysctls: Vec<PodSysctl>,
    /// Settings other than sysctls, each with the plugin after which it was first there.
    pub(crate) settings: Vec<(Setting, String)>,
    /// The messages that make each table of nftables elsewhere, or why there are none, in the kernel's order; read where they were asked for.
    pub(crate) tables: Vec<TableMessages>,
    /// Why the namespace could not be read, where that is so.
    pub(crate) unread: Option<String>,
}

/// A sysctl that a plugin left.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PodSysctl {
    /// The path below `/proc/sys`, with `/` between its parts.
    pub path: String,
    /// The value.
    pub value: String,
    /// The plugin that wrote it.
    pub plugin: String,
}
