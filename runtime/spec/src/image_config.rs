//! The fields of the OCI image configuration that a plan reads. The module has types only; the image store
//! fills them in.

use serde::{Deserialize, Serialize};

/// Defaults that the image gives its containers (OCI image specification, `config.md`).
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
    /// Name or number of the signal that asks the program to end; empty for SIGTERM.
    pub stop_signal: String,
    /// Paths of directories that are to be volumes.
    pub volumes: Vec<String>,
}
