//! Reasons why a SPDY connection cannot continue.

use std::io;

/// Reason why a connection cannot continue.
#[derive(Debug, thiserror::Error)]
pub enum SpdyError {
    /// The byte stream broke.
    #[error("the connection failed")]
    Connection(#[from] io::Error),
    /// A protocol version other than 3.
    #[error("SPDY version {0} is not spoken here")]
    Version(u16),
    /// A control frame longer than ever needed.
    #[error("a control frame of {0} bytes is too long")]
    FrameTooLong(usize),
    /// A header block longer than ever needed.
    #[error("a header block is too long")]
    HeadersTooLong,
    /// A header block that is no zlib stream with our dictionary.
    #[error("a header block's compression is broken")]
    Compression,
    /// Content forbidden by the protocol, by its name.
    #[error("{0} is malformed")]
    Malformed(&'static str),
    /// A stream number that is even or was used before.
    #[error("stream {0} cannot be opened")]
    StreamNumber(u32),
    /// A stream not used by the session, or a second one of a type.
    #[error("a stream of the type {0:?} is not one of this session, or is there already")]
    StreamType(String),
    /// The streams needed by the session, but not opened by the client.
    #[error("the client did not open these requested streams in time: {0}")]
    Unopened(String),
}
