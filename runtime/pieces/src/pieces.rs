//! Reads a stream piece by piece. A few bytes go through memory, many through pipes.

use std::fmt::{self, Debug, Formatter};
use std::io;
use std::sync::Arc;

use bytes::BytesMut;
use tokio::io::{AsyncRead, AsyncReadExt, Interest};
use tokio::net::UnixStream;

use crate::piece::{Piece, Piped};
use crate::pipe_pool::PipePool;

/// Bytes read into memory at a time. A prompt needs little room; after a read fills its room, the next one
/// gets more.
const HELD_BYTES_MIN: usize = 4 << 10;
const HELD_BYTES_MAX: usize = 128 << 10;

/// A stream for reading piece by piece.
pub struct Pieces {
    source: Source,
    /// Bytes of room for the next read.
    room: usize,
}

enum Source {
    /// A socket, with pipes for large amounts at once.
    Socket(UnixStream, Arc<PipePool>),
    /// Any other reader, always into memory.
    Reader(Box<dyn AsyncRead + Send + Unpin>),
}

impl From<UnixStream> for Pieces {
    fn from(socket: UnixStream) -> Self {
        Pieces { source: Source::Socket(socket, Arc::default()), room: HELD_BYTES_MIN }
    }
}

impl Pieces {
    /// Reads from any reader, with all pieces in memory.
    pub fn held(reader: impl AsyncRead + Send + Unpin + 'static) -> Pieces {
        Pieces { source: Source::Reader(Box::new(reader)), room: HELD_BYTES_MIN }
    }

    /// Returns the stream with all further pieces in memory, for a caller that inspects every byte.
    pub fn into_held(self) -> Pieces {
        match self.source {
            Source::Socket(socket, _) => Pieces::held(socket),
            Source::Reader(_) => self,
        }
    }

    /// Returns the next piece: 128 KiB at most in memory, 256 KiB in a pipe; `None` at the end. Cancel-safe.
    ///
    /// # Errors
    /// The stream is broken.
    pub async fn next(&mut self) -> io::Result<Option<Piece>> {
        if let Source::Socket(socket, pipes) = &self.source
            && self.room == HELD_BYTES_MAX
            // Without descriptors for a pipe, bytes still go through memory.
            && pipes.has_one()
        {
            let piped = socket.async_io(Interest::READABLE, || Piped::of(socket, pipes)).await?;
            self.adapt_to(piped.as_ref().map_or(0, Piped::len));
            return Ok(piped.map(Piece::Piped));
        }
        let mut piece = BytesMut::with_capacity(self.room);
        let count = match &mut self.source {
            Source::Socket(socket, _) => socket.read_buf(&mut piece).await?,
            Source::Reader(reader) => reader.read_buf(&mut piece).await?,
        };
        self.adapt_to(count);
        Ok((count > 0).then(|| Piece::Held(piece.freeze())))
    }

    /// Chooses the room for the next read after a read of this many bytes.
    fn adapt_to(&mut self, count: usize) {
        self.room = match count {
            full if full >= self.room => HELD_BYTES_MAX,
            little if little <= HELD_BYTES_MIN => HELD_BYTES_MIN,
            _ => self.room,
        };
    }
}

impl Debug for Pieces {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pieces").field("room", &self.room).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::AsyncWriteExt;
    use tokio::net::{TcpListener, TcpStream};

    use super::*;

    fn pattern(bytes: usize) -> Vec<u8> {
        (0..bytes).map(|number| (number % 251) as u8).collect()
    }

    async fn tcp() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let near = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        (near, listener.accept().await.unwrap().0)
    }

    #[tokio::test]
    async fn pieces_are_as_long_as_what_comes_lets_them_be() {
        let mut pieces = Pieces::held(std::io::Cursor::new(vec![b'x'; 200_000]));
        let mut lengths = Vec::new();
        while let Some(piece) = pieces.next().await.unwrap() {
            lengths.push(piece.into_bytes().unwrap().len());
        }
        let rest = 200_000 - HELD_BYTES_MIN - HELD_BYTES_MAX;
        assert_eq!(lengths, [HELD_BYTES_MIN, HELD_BYTES_MAX, rest]);
    }

    #[tokio::test]
    async fn little_comes_in_memory_and_much_in_pipes() {
        let (mut near, far) = UnixStream::pair().unwrap();
        let mut pieces = Pieces::from(far);
        near.write_all(b"$ ").await.unwrap();
        assert!(matches!(pieces.next().await.unwrap(), Some(Piece::Held(bytes)) if &bytes[..] == b"$ "));
        let sent = pattern(100_000);
        near.write_all(&sent).await.unwrap();
        let first = pieces.next().await.unwrap().unwrap();
        assert!(matches!(&first, Piece::Held(bytes) if bytes.len() == HELD_BYTES_MIN));
        let mut received = first.into_bytes().unwrap().to_vec();
        while received.len() < sent.len() {
            let piece = pieces.next().await.unwrap().unwrap();
            assert!(matches!(piece, Piece::Piped(_)));
            received.extend_from_slice(&piece.into_bytes().unwrap());
        }
        assert!(received == sent);
        near.write_all(b"$ ").await.unwrap();
        assert_eq!(pieces.next().await.unwrap().unwrap().into_bytes().unwrap(), "$ ");
        near.write_all(b"ls").await.unwrap();
        assert!(matches!(pieces.next().await.unwrap(), Some(Piece::Held(_))));
        drop(near);
        assert!(pieces.next().await.unwrap().is_none());
    }

    #[tokio::test]
    async fn spliced_bytes_come_unchanged_and_one_pipe_is_used_again() {
        let ((mut near, far), (server, mut client)) = (UnixStream::pair().unwrap(), tcp().await);
        let sent = pattern(5_000_000);
        let sending = tokio::spawn({
            let sent = sent.clone();
            async move { near.write_all(&sent).await.unwrap() }
        });
        let receiving = tokio::spawn(async move {
            let mut received = Vec::new();
            client.read_to_end(&mut received).await.unwrap();
            received
        });
        let mut pieces = Pieces::from(far);
        let (mut piped, mut server) = (0, server);
        while let Some(piece) = pieces.next().await.unwrap() {
            match piece {
                Piece::Held(bytes) => server.write_all(&bytes).await.unwrap(),
                Piece::Piped(piece) => {
                    piped += piece.len();
                    piece.splice_into(&server).await.unwrap();
                }
            }
        }
        drop(server);
        sending.await.unwrap();
        assert!(receiving.await.unwrap() == sent);
        assert!(piped > sent.len() / 2);
        let Source::Socket(_, pipes) = &pieces.source else { panic!("a socket") };
        assert_eq!(pipes.count(), 1);
    }

    #[tokio::test]
    async fn a_client_that_does_not_read_holds_a_piece_and_one_that_leaves_ends_it() {
        let ((mut near, far), (server, client)) = (UnixStream::pair().unwrap(), tcp().await);
        socket2::SockRef::from(&server).set_send_buffer_size(4096).unwrap();
        let mut pieces = Pieces::from(far);
        tokio::spawn(async move { while near.write_all(&[b'x'; 100_000]).await.is_ok() {} });
        let splicing = tokio::spawn(async move {
            loop {
                if let Some(Piece::Piped(piece)) = pieces.next().await.unwrap()
                    && let Err(error) = piece.splice_into(&server).await
                {
                    return error;
                }
            }
        });
        for _ in 0..1000 {
            tokio::task::yield_now().await;
        }
        assert!(!splicing.is_finished());
        drop(client);
        let kind = splicing.await.unwrap().kind();
        assert!(matches!(kind, io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset), "{kind}");
    }

    #[tokio::test]
    async fn a_reader_that_looks_at_every_byte_gets_no_pipes() {
        let (mut near, far) = UnixStream::pair().unwrap();
        let mut pieces = Pieces::from(far).into_held();
        near.write_all(&pattern(100_000)).await.unwrap();
        drop(near);
        while let Some(piece) = pieces.next().await.unwrap() {
            assert!(matches!(piece, Piece::Held(_)));
        }
    }
}
