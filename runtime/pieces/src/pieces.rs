//! Where pieces come from.

use std::fmt::{self, Debug, Formatter};
use std::io;
use std::sync::Arc;

use bytes::BytesMut;
use tokio::io::{AsyncRead, AsyncReadExt, Interest};
use tokio::net::UnixStream;

use crate::piece::{Piece, Piped};
use crate::pipe::Pipes;

/// Bytes read at a time. A prompt needs little room; what fills it is given more.
const HELD_BYTES_MIN: usize = 4 << 10;
const HELD_BYTES_MAX: usize = 128 << 10;

/// A stream, piece by piece.
pub struct Pieces {
    source: Source,
    /// For the next read.
    room: usize,
}

enum Source {
    /// With pipes for what comes in plenty.
    Socket(UnixStream, Arc<Pipes>),
    Reader(Box<dyn AsyncRead + Send + Unpin>),
}

impl From<UnixStream> for Pieces {
    fn from(socket: UnixStream) -> Self {
        Pieces { source: Source::Socket(socket, Arc::default()), room: HELD_BYTES_MIN }
    }
}

impl Pieces {
    /// All of them in memory, from anything that can be read.
    pub fn held(reader: impl AsyncRead + Send + Unpin + 'static) -> Pieces {
        Pieces { source: Source::Reader(Box::new(reader)), room: HELD_BYTES_MIN }
    }

    /// The same stream, for somebody who looks at every byte.
    pub fn into_held(self) -> Pieces {
        match self.source {
            Source::Socket(socket, _) => Pieces::held(socket),
            Source::Reader(_) => self,
        }
    }

    /// The next piece: 128 KiB at most in memory, 256 KiB in a pipe; `None` at the end. Nothing is lost where it is dropped
    /// before it is done.
    ///
    /// # Errors
    /// The stream is broken.
    pub async fn next(&mut self) -> io::Result<Option<Piece>> {
        if let Source::Socket(socket, pipes) = &self.source
            && self.room == HELD_BYTES_MAX
            // Without descriptors for a pipe there is still the other way.
            && pipes.has_one()
        {
            let piped = socket.async_io(Interest::READABLE, || Piped::of(socket, pipes)).await?;
            self.look_at(piped.as_ref().map_or(0, Piped::len));
            return Ok(piped.map(Piece::Piped));
        }
        let mut piece = BytesMut::with_capacity(self.room);
        let count = match &mut self.source {
            Source::Socket(socket, _) => socket.read_buf(&mut piece).await?,
            Source::Reader(reader) => reader.read_buf(&mut piece).await?,
        };
        self.look_at(count);
        Ok((count > 0).then(|| Piece::Held(piece.freeze())))
    }

    /// After this much has come at once.
    fn look_at(&mut self, count: usize) {
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
            lengths.push(piece.len());
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
        let said = pattern(100_000);
        near.write_all(&said).await.unwrap();
        let first = pieces.next().await.unwrap().unwrap();
        assert!(matches!(&first, Piece::Held(bytes) if bytes.len() == HELD_BYTES_MIN));
        let mut heard = first.into_bytes().unwrap().to_vec();
        while heard.len() < said.len() {
            let piece = pieces.next().await.unwrap().unwrap();
            assert!(matches!(piece, Piece::Piped(_)));
            heard.extend_from_slice(&piece.into_bytes().unwrap());
        }
        assert!(heard == said);
        near.write_all(b"$ ").await.unwrap();
        assert_eq!(pieces.next().await.unwrap().unwrap().into_bytes().unwrap(), "$ ");
        near.write_all(b"ls").await.unwrap();
        assert!(matches!(pieces.next().await.unwrap(), Some(Piece::Held(_))));
        drop(near);
        assert!(pieces.next().await.unwrap().is_none());
    }

    #[tokio::test]
    async fn what_pours_comes_as_it_was_and_few_pipes_are_needed() {
        let ((mut near, far), (server, mut client)) = (UnixStream::pair().unwrap(), tcp().await);
        let said = pattern(5_000_000);
        let saying = tokio::spawn({
            let said = said.clone();
            async move { near.write_all(&said).await.unwrap() }
        });
        let hearing = tokio::spawn(async move {
            let mut heard = Vec::new();
            client.read_to_end(&mut heard).await.unwrap();
            heard
        });
        let mut pieces = Pieces::from(far);
        let (mut piped, mut server) = (0, server);
        while let Some(piece) = pieces.next().await.unwrap() {
            match piece {
                Piece::Held(bytes) => server.write_all(&bytes).await.unwrap(),
                Piece::Piped(piece) => {
                    piped += piece.len();
                    piece.pour(&server).await.unwrap();
                }
            }
        }
        drop(server);
        saying.await.unwrap();
        assert!(hearing.await.unwrap() == said);
        assert!(piped > said.len() / 2);
        let Source::Socket(_, pipes) = &pieces.source else { panic!("a socket") };
        assert_eq!(pipes.count(), 1);
    }

    #[tokio::test]
    async fn a_client_that_does_not_read_holds_a_piece_and_one_that_leaves_ends_it() {
        let ((mut near, far), (server, client)) = (UnixStream::pair().unwrap(), tcp().await);
        socket2::SockRef::from(&server).set_send_buffer_size(4096).unwrap();
        let mut pieces = Pieces::from(far);
        tokio::spawn(async move { while near.write_all(&[b'x'; 100_000]).await.is_ok() {} });
        let pouring = tokio::spawn(async move {
            loop {
                if let Some(Piece::Piped(piece)) = pieces.next().await.unwrap()
                    && let Err(error) = piece.pour(&server).await
                {
                    return error;
                }
            }
        });
        for _ in 0..1000 {
            tokio::task::yield_now().await;
        }
        assert!(!pouring.is_finished());
        drop(client);
        let kind = pouring.await.unwrap().kind();
        assert!(matches!(kind, io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset), "{kind}");
    }

    #[tokio::test]
    async fn somebody_who_looks_at_every_byte_gets_no_pipes() {
        let (mut near, far) = UnixStream::pair().unwrap();
        let mut pieces = Pieces::from(far).into_held();
        near.write_all(&pattern(100_000)).await.unwrap();
        drop(near);
        while let Some(piece) = pieces.next().await.unwrap() {
            assert!(matches!(piece, Piece::Held(_)));
        }
    }
}
