//! An output stream: bytes from the guest, and acknowledgements to it once they are durable.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use runtime_fail_points::{Point, pass_async};
use tokio::io::{AsyncRead, AsyncWriteExt, ReadBuf};
use tokio::net::UnixStream;
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};

/// One process's stdout or stderr, from the offset it was opened at. The stream ends with the process.
#[derive(Debug)]
pub struct OutputStream {
    reader: OutputReader,
    acknowledger: Acknowledger,
}

/// The bytes.
#[derive(Debug)]
pub struct OutputReader {
    half: OwnedReadHalf,
}

/// The way back.
#[derive(Debug)]
pub struct Acknowledger {
    half: OwnedWriteHalf,
}

impl OutputStream {
    pub(crate) fn new(stream: UnixStream) -> OutputStream {
        let (reader, writer) = stream.into_split();
        OutputStream { reader: OutputReader { half: reader }, acknowledger: Acknowledger { half: writer } }
    }

    /// Acknowledges the stream's first `total` bytes as durable, so the agent may drop them.
    pub async fn acknowledge(&mut self, total: u64) -> io::Result<()> {
        self.acknowledger.acknowledge(total).await
    }

    /// Both ways apart.
    pub fn into_split(self) -> (OutputReader, Acknowledger) {
        (self.reader, self.acknowledger)
    }
}

impl Acknowledger {
    /// See [`OutputStream::acknowledge`].
    pub async fn acknowledge(&mut self, total: u64) -> io::Result<()> {
        pass_async(Point::AgentAcknowledge).await?;
        self.half.write_all(&total.to_le_bytes()).await
    }
}

impl AsyncRead for OutputReader {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.half).poll_read(context, buffer)
    }
}

impl AsyncRead for OutputStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.reader).poll_read(context, buffer)
    }
}
