//! Why a SPDY connection cannot go on.

use std::io;

/// Why a connection cannot go on.
#[derive(Debug, thiserror::Error)]
pub enum SpdyError {
    /// The byte stream broke.
    #[error("the connection failed")]
    Connection(#[from] io::Error),
    /// A protocol version other than 3.
    #[error("SPDY version {0} is not spoken here")]
    Version(u16),
    /// A control frame longer than any that is needed.
    #[error("a control frame of {0} bytes is too long")]
    FrameTooLong(usize),
    /// A header block longer than any that is needed.
    #[error("a header block is too long")]
    HeadersTooLong,
    /// A header block that is no zlib stream with our dictionary.
    #[error("a header block's compression is broken")]
    Compression,
    /// Content that the protocol does not allow, by its name.
    #[error("{0} is malformed")]
    Malformed(&'static str),
    /// A stream number that is even or was used before.
    #[error("stream {0} cannot be opened")]
    StreamNumber(u32),
    /// A stream that the session does not use, or a second one of a type.
    #[error("a stream of the type {0:?} is not one of this session, or is there already")]
    StreamType(String),
    /// The streams that the session needs and the client did not open.
    #[error("the client did not open in time what it had asked for: {0}")]
    Unopened(String),
}
