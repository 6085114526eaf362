//! How plugins are served.

use std::path::PathBuf;
use std::time::Duration;

/// How plugins are served.
#[derive(Clone, Debug)]
pub struct NriConfig {
    /// Name of the runtime, as plugins see it.
    pub runtime_name: String,
    /// Version of the runtime, as plugins see it.
    pub runtime_version: String,
    /// Socket for plugins that connect; `None` for no such plugins.
    pub socket: Option<PathBuf>,
    /// Directory of the plugins that are started.
    pub plugin_dir: PathBuf,
    /// Directory of their configuration files.
    pub plugin_conf_dir: PathBuf,
    /// How long a plugin may take to register, and to take what pods and containers there are.
    pub registration_timeout: Duration,
    /// How long a plugin may take to answer.
    pub request_timeout: Duration,
}
