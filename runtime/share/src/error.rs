//! Why a host path was not bound. The messages name fields of CRI, since callers show them to users.

use std::io;
use std::path::PathBuf;

/// Why a host path could not be bound or unbound.
#[derive(Debug, thiserror::Error)]
pub enum ShareError {
    /// The caller named a path that is not there.
    #[error("host path {}: no such file or directory", .path.display())]
    Missing {
        /// The path as the caller named it.
        path: PathBuf,
    },
    /// The path names a socket, which leads to a program of the node.
    #[error(
        "host path {}: a socket of the node does not reach into a VM, unless the handler's host_sockets names it",
        .path.display()
    )]
    Socket {
        /// The path as the caller named it.
        path: PathBuf,
    },
    /// The path names something that means nothing inside a VM.
    #[error("host path {}: a {kind} of the node does not reach into a VM", .path.display())]
    Kind {
        /// The path as the caller named it.
        path: PathBuf,
        /// The kind of file, for example "device".
        kind: &'static str,
    },
    /// The caller asked for later mounts, and the host would not pass them on.
    #[error(
        "host path {}: its mount on the node is neither shared nor a slave, so that later mounts would \
         not reach the container",
        .path.display()
    )]
    NotShared {
        /// The path as the caller named it.
        path: PathBuf,
    },
    /// Owners are to be mapped, but a file system at or below the path cannot do that, or a mount maps owners already.
    #[error("host path {}: mounts.uid_mappings: its file system on the node cannot map owners", .path.display())]
    NotMappable {
        /// The path as the caller named it.
        path: PathBuf,
        /// The kernel's reason.
        source: io::Error,
    },
    /// The kernel refused.
    #[error("cannot {action} {}", .path.display())]
    Io {
        /// The action that failed, a verb with its preposition.
        action: &'static str,
        /// The path that the action was for.
        path: PathBuf,
        /// The kernel's reason.
        source: io::Error,
    },
}

impl ShareError {
    /// Returns whether the request cannot be fulfilled, rather than the node being at fault.
    pub fn is_refusal(&self) -> bool {
        !matches!(self, ShareError::Io { .. })
    }
}
