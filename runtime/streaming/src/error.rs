//! Why the streaming server does not start, or gives no URL for a session. Errors of a session that runs are
//! `spdy/error.rs`'s.

use std::io;
use std::net::SocketAddr;

use crate::tls::TlsError;

/// Why the server does not start, or a session cannot be offered.
#[derive(Debug, thiserror::Error)]
pub enum ServerError {
    /// This many sessions wait for their clients, which is the limit.
    #[error("{0} streaming sessions wait for their clients already")]
    TooManyPending(usize),
    /// The kernel gave no random bytes for a token.
    #[error("no random bytes for a token")]
    NoRandomness,
    /// The address cannot be listened on.
    #[error("listening for streaming clients on {address}")]
    Listen {
        /// The address as configured.
        address: SocketAddr,
        /// The kernel's reason.
        source: io::Error,
    },
    /// URLs name the address, so it must be one that can be dialled.
    #[error("streaming clients cannot dial {0}: it is no address of a host")]
    Unspecified(SocketAddr),
    /// The certificate or its key cannot be used.
    #[error("serving streaming clients by TLS")]
    Tls(#[from] TlsError),
}
