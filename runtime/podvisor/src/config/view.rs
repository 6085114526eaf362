//! A daemon's configuration in force. `podvisor config` and `podvisor check` read it from verbose Status.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::setting::Setting;

/// A daemon's configuration.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct ConfigView {
    /// Process of the daemon.
    pub(crate) pid: u32,
    /// The daemon's configuration file.
    pub(crate) file: PathBuf,
    /// All keys in force.
    pub(crate) settings: Vec<Setting>,
    /// The last reload, if there was one.
    pub(crate) reload: Option<Reload>,
}

/// A finished reload.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Reload {
    /// Seconds since the epoch.
    pub(crate) at_s: u64,
    /// The reason for refusing the file; `None` if it was accepted.
    pub(crate) refused: Option<String>,
}

impl ConfigView {
    /// The reason for refusing the file at its last read.
    pub(crate) fn refused(&self) -> Option<&str> {
        self.reload.as_ref()?.refused.as_deref()
    }
}
