//! Reasons why the streaming server does not start, or gives no URL for a session. `spdy/error.rs` has the
//! errors of a running session.

use std::io;
use std::net::SocketAddr;

use crate::tls::TlsError;

/// Reason why the server does not start, or a session cannot be offered.
#[derive(Debug, thiserror::Error)]
pub enum ServerError {
    /// This many sessions wait for their clients, the most allowed.
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
    /// URLs name the address, so clients must be able to dial it.
    #[error("streaming clients cannot dial {0}: it is no address of a host")]
    Unspecified(SocketAddr),
    /// The certificate or its key cannot be used.
    #[error("serving streaming clients by TLS")]
    Tls(#[from] TlsError),
}
