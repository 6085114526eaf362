//! The fields of the OCI image configuration needed for a plan. The module has only types; the image store
//! fills them in.

use serde::{Deserialize, Serialize};

/// The image's defaults for its containers (OCI image specification, `config.md`).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ImageConfig {
    /// User as `user[:group]`; empty for root.
    pub user: String,
    /// Environment variables as `NAME=value`.
    pub env: Vec<String>,
    /// First words of the command line; may be empty.
    pub entrypoint: Vec<String>,
    /// Words after the entrypoint; may be empty.
    pub cmd: Vec<String>,
    /// Working directory; empty for `/`.
    pub working_dir: String,
    /// Name or number of the signal for stopping the program. Empty for SIGTERM.
    pub stop_signal: String,
    /// Paths of directories declared as volumes.
    pub volumes: Vec<String>,
}
