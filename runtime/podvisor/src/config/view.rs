//! The configuration that a daemon has in force, as verbose Status carries it to `podvisor config` and `podvisor check`.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::setting::Setting;

/// A daemon's configuration.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct ConfigView {
    /// Process of the daemon.
    pub(crate) pid: u32,
    /// The file that the daemon reads.
    pub(crate) file: PathBuf,
    /// All keys, as they are in force.
    pub(crate) settings: Vec<Setting>,
    /// The last reload, if there was one.
    pub(crate) reload: Option<Reload>,
}

/// A reload that has ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Reload {
    /// Seconds since the epoch.
    pub(crate) at_s: u64,
    /// The reason why the file was refused; `None` where it was taken.
    pub(crate) refused: Option<String>,
}

impl ConfigView {
    /// The reason why the file was refused when it was read last.
    pub(crate) fn refused(&self) -> Option<&str> {
        self.reload.as_ref()?.refused.as_deref()
    }
}
