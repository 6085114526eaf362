//! The form of the table: sections of the file, and the keys of each.

use serde::Serialize;

/// One table of the configuration file.
#[derive(Debug)]
pub(crate) struct Section {
    /// Name of the TOML table.
    pub(crate) name: &'static str,
    /// Whether the table may be repeated in the file.
    pub(crate) repeated: bool,
    /// Meaning of the table.
    pub(crate) text: &'static str,
    /// Keys, in the order of the struct's fields.
    pub(crate) keys: &'static [Key],
}

/// One key of a table.
#[derive(Debug)]
pub(crate) struct Key {
    /// Name of the key.
    pub(crate) name: &'static str,
    /// Type of the value, for people.
    pub(crate) kind: &'static str,
    /// For a key without a default: an example of its value in TOML, and the behaviour while it is unset.
    pub(crate) unset: Option<(&'static str, &'static str)>,
    /// Meaning of the key.
    pub(crate) text: &'static str,
    /// When a new value takes effect.
    pub(crate) takes: Takes,
}

/// When a running daemon uses the new value of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Takes {
    /// After a reload. Keys about pods affect later pods only.
    Reload,
    /// After a restart.
    Restart,
}
