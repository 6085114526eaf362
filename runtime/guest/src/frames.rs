//! Frames on an asynchronous stream; their shape is `proto_agent::frame`'s.

use std::time::Duration;

use proto_agent::frame::{self, HEADER_BYTES};
use protobuf::Message;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

use crate::error::GuestError;

/// How long the guest may take for a due frame. A guest with one CPU, starting thirty commands at once on a
/// busy host, has taken more than ten seconds.
const DUE: Duration = Duration::from_secs(30);

/// Reads one frame; no byte beyond it.
pub(crate) async fn read<M, R>(method: &'static str, reader: &mut R) -> Result<M, GuestError>
where
    M: Message,
    R: AsyncRead + Unpin,
{
    let invalid = |error: frame::FrameError| GuestError::Protocol { method, message: error.to_string() };
    let read = async {
        let mut header = [0; HEADER_BYTES];
        reader.read_exact(&mut header).await.map_err(GuestError::unreachable(method))?;
        let mut body = vec![0; frame::body_bytes(header).map_err(invalid)?];
        reader.read_exact(&mut body).await.map_err(GuestError::unreachable(method))?;
        frame::decode(&body).map_err(invalid)
    };
    tokio::time::timeout(DUE, read).await.unwrap_or(Err(GuestError::Deadline { method }))
}

/// Writes one frame.
pub(crate) async fn write<M, W>(method: &'static str, writer: &mut W, message: &M) -> Result<(), GuestError>
where
    M: Message,
    W: AsyncWrite + Unpin,
{
    let bytes = frame::encode(message)
        .map_err(|error| GuestError::Protocol { method, message: error.to_string() })?;
    writer.write_all(&bytes).await.map_err(GuestError::unreachable(method))
}
