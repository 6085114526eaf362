//! Reasons for not binding a host path. Messages name CRI fields, because callers show them to users.

use std::io;
use std::path::PathBuf;

/// A failure to bind or unbind a host path.
#[derive(Debug, thiserror::Error)]
pub enum ShareError {
    /// The path does not exist.
    #[error("host path {}: no such file or directory", .path.display())]
    Missing {
        /// The path as given by the caller.
        path: PathBuf,
    },
    /// The path is a socket, and a socket leads to a program of the node.
    #[error(
        "host path {}: a socket of the node does not reach into a VM, unless the handler's host_sockets names it",
        .path.display()
    )]
    Socket {
        /// The path as given by the caller.
        path: PathBuf,
    },
    /// The path is a kind of file without meaning inside a VM.
    #[error("host path {}: a {kind} of the node does not reach into a VM", .path.display())]
    Kind {
        /// The path as given by the caller.
        path: PathBuf,
        /// The kind of file, for example "device".
        kind: &'static str,
    },
    /// The caller asked for later mounts, but the host would not propagate them.
    #[error(
        "host path {}: its mount on the node is neither shared nor a slave, so that later mounts would \
         not reach the container",
        .path.display()
    )]
    NotShared {
        /// The path as given by the caller.
        path: PathBuf,
    },
    /// Owners are to be mapped, but a file system at or below the path cannot map them, or a mount already
    /// does.
    #[error("host path {}: mounts.uid_mappings: its file system on the node cannot map owners", .path.display())]
    NotMappable {
        /// The path as the caller named it.
        path: PathBuf,
        /// The kernel's reason.
        source: io::Error,
    },
    /// The caller has given up, so nothing is bound.
    #[error("nobody waits for the host paths any more")]
    GivenUp,
    /// The kernel refused.
    #[error("cannot {action} {}", .path.display())]
    Io {
        /// The failed action: a verb with its preposition.
        action: &'static str,
        /// The action's path.
        path: PathBuf,
        /// The kernel's reason.
        source: io::Error,
    },
}

impl ShareError {
    /// Returns true if the request is at fault, and false if the node is.
    pub fn is_refusal(&self) -> bool {
        !matches!(self, ShareError::Io { .. } | ShareError::GivenUp)
    }
}
