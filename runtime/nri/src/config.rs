//! Configuration of the plugin server.

use std::path::PathBuf;
use std::time::Duration;

/// Configuration of the plugin server.
#[derive(Clone, Debug)]
pub struct NriConfig {
    /// Name of the runtime, as plugins see it.
    pub runtime_name: String,
    /// Version of the runtime, as plugins see it.
    pub runtime_version: String,
    /// Socket for plugins connecting on their own. `None` refuses such plugins.
    pub socket: Option<PathBuf>,
    /// Directory of the plugins to start.
    pub plugin_dir: PathBuf,
    /// Directory of their configuration files.
    pub plugin_conf_dir: PathBuf,
    /// Time limit for a plugin to register and to accept the existing pods and containers.
    pub registration_timeout: Duration,
    /// Time limit for a plugin's answer.
    pub request_timeout: Duration,
}
