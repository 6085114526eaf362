//! A piece of a stream: bytes in memory, or in a pipe of their own. `pieces.rs` decides between the two.

use std::io;
use std::os::fd::AsFd;
use std::sync::Arc;

use bytes::Bytes;
use rustix::buffer::spare_capacity;
use rustix::pipe::{SpliceFlags, splice};
use tokio::io::Interest;
use tokio::net::TcpStream;

use crate::pipe_pool::{Pipe, PipePool};

/// Most bytes moved into a pipe at once. A pipe's sixteen slots hold this much: sockets use up to 32 KiB a
/// slot.
pub(crate) const PIPED_BYTES_MAX: usize = 256 << 10;

/// Splice without waiting, and without a copy if pages can be moved.
const BY_MOVING: SpliceFlags = SpliceFlags::NONBLOCK.union(SpliceFlags::MOVE);

/// Consecutive bytes of a stream.
#[derive(Debug)]
pub enum Piece {
    /// The bytes are in memory.
    Held(Bytes),
    /// The bytes are in a pipe.
    Piped(Piped),
}

impl Piece {
    /// Returns the bytes, in memory.
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

/// Bytes kept by the kernel, in a pipe. Dropping this loses the bytes not yet taken.
#[derive(Debug)]
pub struct Piped {
    /// The pipe; `None` only while this is dropped.
    pipe: Option<Pipe>,
    left: usize,
    pool: Arc<PipePool>,
}

impl Piped {
    /// Moves the socket's pending bytes into an empty pipe; returns `None` at the socket's end.
    pub(crate) fn of(socket: &impl AsFd, pool: &Arc<PipePool>) -> io::Result<Option<Piped>> {
        // Made before the splice, so a pipe that stays empty returns to the pool.
        let mut piped = Piped { pipe: Some(pool.take()?), left: 0, pool: Arc::clone(pool) };
        if let Some(pipe) = &piped.pipe {
            piped.left = splice(socket, None, &pipe.inlet, None, PIPED_BYTES_MAX, BY_MOVING)?;
        }
        Ok((piped.left > 0).then_some(piped))
    }

    /// Returns the number of bytes, never 0.
    #[expect(clippy::len_without_is_empty, reason = "bytes in a pipe are never none")]
    pub fn len(&self) -> usize {
        self.left
    }

    /// Moves all bytes to a client's connection. Not cancel-safe: bytes already moved are not returned.
    ///
    /// # Errors
    /// The connection has failed.
    pub async fn splice_into(mut self, into: &TcpStream) -> io::Result<()> {
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
            self.pool.put_back(pipe);
        }
    }
}
