//! Why a host path was not bound.

use std::io;
use std::path::PathBuf;

/// Why a host path was not bound, or not let go.
#[derive(Debug, thiserror::Error)]
pub enum ShareError {
    /// The caller named a path that is not there.
    #[error("host path {}: no such file or directory", .path.display())]
    Missing {
        /// As the caller named it.
        path: PathBuf,
    },
    /// It is there, and means nothing in another machine.
    #[error("host path {}: a {kind} of the node does not reach into a VM", .path.display())]
    Kind {
        /// As the caller named it.
        path: PathBuf,
        /// "socket", "named pipe", "device".
        kind: &'static str,
    },
    /// Later mounts are asked for, and the host would not pass them on.
    #[error(
        "host path {}: its mount on the node is neither shared nor a slave, so that later mounts would \
         not reach the container",
        .path.display()
    )]
    NotShared {
        /// As the caller named it.
        path: PathBuf,
    },
    /// Owners are to be mapped, and it has a file system that cannot (or one is mounted below), or a mount
    /// that maps them already.
    #[error("host path {}: mounts.uid_mappings: its file system on the node cannot map owners", .path.display())]
    NotMappable {
        /// As the caller named it.
        path: PathBuf,
        /// The kernel's reason.
        source: io::Error,
    },
    /// The kernel refused.
    #[error("cannot {action} {}", .path.display())]
    Io {
        /// What was being done.
        action: &'static str,
        /// To what.
        path: PathBuf,
        /// The kernel's reason.
        source: io::Error,
    },
}

impl ShareError {
    /// Whether the caller asked for what cannot be, rather than the node being at fault.
    pub fn is_refusal(&self) -> bool {
        !matches!(self, ShareError::Io { .. })
    }
}
