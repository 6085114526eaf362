//! An input stream: bytes to a process's stdin and sizes to its terminal, in the order of writing.

use std::io;

use proto_agent::FRAME_BYTES_MAX;
use proto_agent::record::Record;
use runtime_fail_points::{Point, pass_async};
use tokio::io::AsyncWriteExt;
use tokio::net::UnixStream;

/// A way to one process's stdin. Dropping it leaves the stdin open.
#[derive(Debug)]
pub struct InputStream {
    stream: UnixStream,
}

impl InputStream {
    pub(crate) fn new(stream: UnixStream) -> InputStream {
        InputStream { stream }
    }

    /// Writes all bytes. Waits while the process does not take them.
    pub async fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        pass_async(Point::AgentInput).await?;
        for piece in bytes.chunks(FRAME_BYTES_MAX as usize) {
            let count = u32::try_from(piece.len()).unwrap_or(FRAME_BYTES_MAX);
            self.stream.write_all(&Record::Bytes(count).encode()).await?;
            self.stream.write_all(piece).await?;
        }
        Ok(())
    }

    /// Gives the terminal a new size.
    pub async fn resize(&mut self, columns: u16, rows: u16) -> io::Result<()> {
        pass_async(Point::AgentInput).await?;
        self.stream.write_all(&Record::Resize { columns, rows }.encode()).await
    }

    /// The process's end of file.
    pub async fn end(&mut self) -> io::Result<()> {
        pass_async(Point::AgentInput).await?;
        self.stream.write_all(&Record::End.encode()).await
    }
}
