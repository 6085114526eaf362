//! A stream to a vsock port of the guest, through the VMM's socket.

use std::io;
use std::path::Path;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;

use crate::error::GuestError;

/// How long the VMM and the guest may take to accept: both only note it, once they have a CPU.
const ACCEPT: Duration = Duration::from_secs(30);
/// Longest answer, in bytes: `OK 4294967295\n` is 14.
const ANSWER_BYTES_MAX: usize = 32;

/// A stream to `port`.
pub(crate) async fn dial(method: &'static str, socket: &Path, port: u32) -> Result<UnixStream, GuestError> {
    match tokio::time::timeout(ACCEPT, handshake(socket, port)).await {
        Ok(Ok(stream)) => Ok(stream),
        Ok(Err(source)) => Err(GuestError::Unreachable { method, source }),
        Err(_) => Err(GuestError::Deadline { method }),
    }
}

async fn handshake(socket: &Path, port: u32) -> io::Result<UnixStream> {
    let mut stream = UnixStream::connect(socket).await?;
    stream.write_all(format!("CONNECT {port}\n").as_bytes()).await?;
    let mut answer = Vec::with_capacity(ANSWER_BYTES_MAX);
    // Byte by byte: bytes after the line belong to the stream.
    loop {
        let byte = stream.read_u8().await?;
        if byte == b'\n' {
            break;
        }
        answer.push(byte);
        if answer.len() == ANSWER_BYTES_MAX {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "the VMM's answer has no end"));
        }
    }
    if !answer.starts_with(b"OK ") {
        return Err(io::Error::new(io::ErrorKind::ConnectionRefused, "the VMM refused the connection"));
    }
    Ok(stream)
}
