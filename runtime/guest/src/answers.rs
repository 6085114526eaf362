//! The size limit of an agent's answers. ttrpc reads a message whole before it decodes it, and a small
//! message may become a large one then. So a longer message ends the connection at its header.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// Longest answer, in bytes. The longest legitimate one is the usage of some hundred containers.
pub(crate) const ANSWER_BYTES_MAX: usize = 256 << 10;

/// Bytes of a message's header (ttrpc's PROTOCOL.md): its length, the stream's number, a type and flags.
const HEADER_BYTES: usize = 10;

/// A connection with an upper limit of [`ANSWER_BYTES_MAX`] on each message read.
#[derive(Debug)]
pub(crate) struct Answers<S> {
    stream: S,
    header: [u8; HEADER_BYTES],
    /// Bytes of the header received so far.
    header_bytes: usize,
    /// Bytes of the message still expected.
    body_bytes: usize,
}

impl<S> Answers<S> {
    pub(crate) fn new(stream: S) -> Answers<S> {
        Answers { stream, header: [0; HEADER_BYTES], header_bytes: 0, body_bytes: 0 }
    }

    /// Tracks message boundaries through the bytes just read.
    fn follow(&mut self, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            if self.body_bytes > 0 {
                let taken = self.body_bytes.min(bytes.len());
                self.body_bytes -= taken;
                bytes = &bytes[taken..];
                continue;
            }
            let taken = (HEADER_BYTES - self.header_bytes).min(bytes.len());
            self.header[self.header_bytes..self.header_bytes + taken].copy_from_slice(&bytes[..taken]);
            self.header_bytes += taken;
            bytes = &bytes[taken..];
            if self.header_bytes == HEADER_BYTES {
                self.header_bytes = 0;
                let [a, b, c, d, ..] = self.header;
                self.body_bytes = u32::from_be_bytes([a, b, c, d]) as usize;
            }
            if self.body_bytes > ANSWER_BYTES_MAX {
                let message = format!(
                    "an answer of {} bytes, and at most {ANSWER_BYTES_MAX} are taken",
                    self.body_bytes
                );
                return Err(io::Error::new(io::ErrorKind::InvalidData, message));
            }
        }
        Ok(())
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Answers<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = into.filled().len();
        ready!(Pin::new(&mut self.stream).poll_read(context, into))?;
        Poll::Ready(self.follow(&into.filled()[before..]))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Answers<S> {
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

#[cfg(test)]
mod tests {
    use super::*;

    fn message(bytes: usize) -> Vec<u8> {
        let length = u32::try_from(bytes).unwrap().to_be_bytes();
        [&length[..], &[0; 6], &vec![7; bytes]].concat()
    }

    /// What is read of these bytes where they come in pieces of this size.
    fn read(bytes: &[u8], piece: usize) -> io::Result<()> {
        let mut answers = Answers::new(());
        bytes.chunks(piece).try_for_each(|piece| answers.follow(piece))
    }

    #[test]
    fn an_answer_beyond_the_bound_ends_the_connection_at_its_header() {
        let fine = [message(0), message(3), message(ANSWER_BYTES_MAX), message(1)].concat();
        let header = &message(ANSWER_BYTES_MAX + 1)[..HEADER_BYTES];
        for piece in [1, 7, 10, 4096, usize::MAX] {
            read(&fine, piece).unwrap();
            let error = read(&[&fine[..], header].concat(), piece).unwrap_err();
            assert!(error.to_string().contains("262145"), "{error}");
            // Nothing is judged before the header is whole.
            read(&[&fine[..], &header[..HEADER_BYTES - 1]].concat(), piece).unwrap();
        }
    }
}
