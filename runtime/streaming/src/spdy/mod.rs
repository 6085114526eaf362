//! The part of SPDY/3.1 that Kubernetes' clients speak, from either side. [`frame`] and [`headers`] are
//! pure; [`reader`] turns a byte stream into events, [`writer`] frames into bytes.
//!
//! There is no flow control: clients neither send nor await WINDOW_UPDATE. So a stream that is not
//! taken holds its whole connection, and TCP holds the peer.

mod dictionary;
pub(crate) mod frame;
pub(crate) mod headers;
pub(crate) mod reader;
pub(crate) mod writer;

use std::io;

/// Why a connection cannot go on.
#[derive(Debug, thiserror::Error)]
pub enum SpdyError {
    /// The byte stream broke.
    #[error("the connection failed")]
    Connection(#[from] io::Error),
    /// Another protocol version.
    #[error("SPDY version {0} is not spoken here")]
    Version(u16),
    /// A control frame longer than any that is needed.
    #[error("a control frame of {0} bytes is too long")]
    FrameTooLong(usize),
    /// A header block with more in it than is needed.
    #[error("a header block is too long")]
    HeadersTooLong,
    /// A header block that is no zlib stream with our dictionary.
    #[error("a header block's compression is broken")]
    Compression,
    /// Something that is not as the protocol says.
    #[error("{0} is malformed")]
    Malformed(&'static str),
    /// A stream number that is no new odd one.
    #[error("stream {0} cannot be opened")]
    StreamNumber(u32),
    /// A stream that the session has no use for, or has already.
    #[error("a stream of the type {0:?} is not one of this session, or is there already")]
    StreamType(String),
    /// Streams that the session cannot begin without.
    #[error("the client did not open in time what it had asked for: {0}")]
    Unopened(String),
}
