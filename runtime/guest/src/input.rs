//! An input stream: bytes to a process's stdin, or a terminal.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::AsyncWrite;
use tokio::net::UnixStream;

/// One process's stdin. `shutdown()` is its end of file, and so is dropping the stream.
#[derive(Debug)]
pub struct InputStream {
    stream: UnixStream,
}

impl InputStream {
    pub(crate) fn new(stream: UnixStream) -> InputStream {
        InputStream { stream }
    }
}

impl AsyncWrite for InputStream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}
