//! Sockets of the node reachable from a container through the agent.

use std::fmt;
use std::path::{Path, PathBuf};

/// Bytes of a token.
pub const SOCKET_TOKEN_BYTES: usize = 32;

/// The secret identifying the container and the socket of a connection to the host.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct SocketToken(pub [u8; SOCKET_TOKEN_BYTES]);

/// The bytes are not shown, because a log has more readers than the secret may have.
impl fmt::Debug for SocketToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SocketToken")
    }
}

/// A socket of the node, as a mount of the container or in the directory of one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostSocketPlan {
    /// Index of the mount in the container's spec.
    pub mount: usize,
    /// The container's place of the socket.
    pub place: SocketPlace,
    /// The secret of the container and the socket.
    pub token: SocketToken,
}

/// A container's place of a socket of the node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SocketPlace {
    /// The mount is the socket. Has the source of the bind mount in the OCI specification.
    Mount(String),
    /// The socket lies in the mounted directory.
    Directory {
        /// The directory's place in the container.
        directory: PathBuf,
        /// Path of the socket in it.
        sub_path: PathBuf,
    },
}

/// Placeholder for the path of the agent's socket until the agent knows it.
pub(super) fn source(number: usize, parent: &str) -> String {
    Path::new(parent).join(number.to_string()).display().to_string()
}
