//! A piece of a stream: bytes in memory, or in a pipe of their own.

use std::io;
use std::os::fd::AsFd;
use std::sync::Arc;

use bytes::Bytes;
use rustix::buffer::spare_capacity;
use rustix::pipe::{SpliceFlags, splice};
use tokio::io::Interest;
use tokio::net::TcpStream;

use crate::pipe::{Pipe, Pipes};

/// Moved into a pipe at once, in bytes, at most. Its sixteen places hold that much as sockets keep it: up to 32 KiB a place.
pub(crate) const PIPED_BYTES_MAX: usize = 256 << 10;

/// Neither waits, nor copies where pages can be moved.
const BY_MOVING: SpliceFlags = SpliceFlags::NONBLOCK.union(SpliceFlags::MOVE);

/// Bytes that follow one another in a stream.
#[derive(Debug)]
pub enum Piece {
    /// In memory.
    Held(Bytes),
    /// In a pipe.
    Piped(Piped),
}

impl Piece {
    /// How many bytes.
    pub fn len(&self) -> usize {
        match self {
            Piece::Held(bytes) => bytes.len(),
            Piece::Piped(piped) => piped.len(),
        }
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The bytes, in memory.
    ///
    /// # Errors
    /// The pipe cannot be read.
    pub fn into_bytes(self) -> io::Result<Bytes> {
        match self {
            Piece::Held(bytes) => Ok(bytes),
            Piece::Piped(piped) => piped.into_bytes(),
        }
    }
}

impl From<Bytes> for Piece {
    fn from(bytes: Bytes) -> Self {
        Piece::Held(bytes)
    }
}

/// Bytes that the kernel keeps. Those that are not taken go with it.
#[derive(Debug)]
pub struct Piped {
    /// Gone in its drop alone.
    pipe: Option<Pipe>,
    left: usize,
    home: Arc<Pipes>,
}

impl Piped {
    /// Moves what the socket has into an empty pipe; `None` at the socket's end.
    pub(crate) fn of(socket: &impl AsFd, home: &Arc<Pipes>) -> io::Result<Option<Piped>> {
        // Whatever comes of it, a pipe with nothing in it goes home again.
        let mut piped = Piped { pipe: Some(home.take()?), left: 0, home: Arc::clone(home) };
        if let Some(pipe) = &piped.pipe {
            piped.left = splice(socket, None, &pipe.inlet, None, PIPED_BYTES_MAX, BY_MOVING)?;
        }
        Ok((piped.left > 0).then_some(piped))
    }

    /// How many bytes; never none.
    #[allow(clippy::len_without_is_empty)]
    pub fn len(&self) -> usize {
        self.left
    }

    /// Moves all of it to a client. What has been moved when this is dropped is gone.
    ///
    /// # Errors
    /// The connection has failed.
    pub async fn pour(mut self, into: &TcpStream) -> io::Result<()> {
        while self.left > 0
            && let Some(pipe) = &self.pipe
        {
            let step = || Ok(splice(&pipe.outlet, None, into, None, self.left, BY_MOVING)?);
            self.left -= match into.async_io(Interest::WRITABLE, step).await? {
                0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                moved => moved,
            };
        }
        Ok(())
    }

    fn into_bytes(mut self) -> io::Result<Bytes> {
        let mut bytes = Vec::with_capacity(self.left);
        while self.left > 0
            && let Some(pipe) = &self.pipe
        {
            self.left -= match rustix::io::read(&pipe.outlet, spare_capacity(&mut bytes))? {
                0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                count => count,
            };
        }
        Ok(bytes.into())
    }
}

impl Drop for Piped {
    fn drop(&mut self) {
        if let Some(pipe) = self.pipe.take()
            && self.left == 0
        {
            self.home.give(pipe);
        }
    }
}
