//! Input: from a host connection into a process's pipe or terminal. The host's half-close is the
//! process's end of file; a process that does not read holds the connection, and nobody else.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::net::unix::pipe;
use tokio::sync::Mutex;

/// Bytes moved at a time.
const CHUNK_BYTES: usize = 16 * 1024;
/// What a terminal takes as end of file at the start of a line: EOT (termios(3), VEOF).
const END_OF_TRANSMISSION: [u8; 1] = [4];

/// Standard input of one process. One connection at a time; a second one waits for the first to end.
#[derive(Debug)]
pub(crate) struct Input {
    target: Mutex<Option<pipe::Sender>>,
    terminal: bool,
}

impl Input {
    /// A stream into `target`: a pipe, or the master side of a terminal.
    pub(crate) fn new(target: OwnedFd, terminal: bool) -> io::Result<Arc<Input>> {
        let flags = rustix::fs::fcntl_getfl(&target)?;
        rustix::fs::fcntl_setfl(&target, flags | rustix::fs::OFlags::NONBLOCK)?;
        // Unchecked, since a terminal's master side is no pipe; readiness works the same.
        let target = pipe::Sender::from_owned_fd_unchecked(target)?;
        Ok(Arc::new(Input { target: Mutex::new(Some(target)), terminal }))
    }

    /// Whether its end of file has been passed on.
    pub(crate) fn closed(&self) -> bool {
        self.target.try_lock().is_ok_and(|target| target.is_none())
    }

    /// Writes what the connection brings, until its end or the process's.
    pub(crate) async fn serve<S: AsyncRead>(&self, connection: S) -> io::Result<()> {
        tokio::pin!(connection);
        let mut slot = self.target.lock().await;
        let Some(target) = slot.as_ref() else { return Ok(()) };
        let mut chunk = vec![0; CHUNK_BYTES];
        loop {
            let count = connection.read(&mut chunk).await?;
            if count == 0 {
                break;
            }
            write_all(target, &chunk[..count]).await?;
        }
        if self.terminal {
            // Its master side carries the output too, so it stays open.
            return write_all(target, &END_OF_TRANSMISSION).await;
        }
        *slot = None;
        Ok(())
    }
}

async fn write_all(target: &pipe::Sender, mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        match target.try_write(bytes) {
            Ok(count) => bytes = &bytes[count..],
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => target.writable().await?,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use tokio::io::{AsyncWriteExt, duplex};

    use super::*;

    #[tokio::test]
    async fn a_half_close_is_the_process_s_end_of_file() {
        let (mut process, target) = std::io::pipe().unwrap();
        let input = Input::new(target.into(), false).unwrap();
        let (mut host, connection) = duplex(64);
        host.write_all(b"typed").await.unwrap();
        host.shutdown().await.unwrap();
        input.serve(connection).await.unwrap();
        let mut text = String::new();
        process.read_to_string(&mut text).unwrap();
        assert_eq!(text, "typed");
        assert!(input.closed());
    }

    #[tokio::test]
    async fn a_process_that_is_gone_ends_the_connection() {
        let (process, target) = std::io::pipe().unwrap();
        drop(process);
        let input = Input::new(target.into(), false).unwrap();
        let (mut host, connection) = duplex(64);
        host.write_all(b"typed").await.unwrap();
        let error = input.serve(connection).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::BrokenPipe);
    }
}
