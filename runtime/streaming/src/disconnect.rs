//! Tells that a client has closed its connection, to those who cannot read on and find out because what they
//! have read is not taken; and says how long a client is waited for to do so.

use std::io;
use std::os::fd::AsFd;
use std::time::Duration;

use tokio::io::Interest;
use tokio::net::TcpStream;

/// How long a client that was told the outcome may take to hang up before we do. Much of what was said before may
/// still be on its way, in an API server's buffers or behind a slow line, and clients throw away what they have not
/// read when their connection ends. One that closes is noticed at once.
pub(crate) const CLOSE_TIMEOUT: Duration = Duration::from_secs(10 * 60);

/// The same for one that waits for nothing, because its session has broken off.
pub(crate) const BROKEN_CLOSE_TIMEOUT: Duration = Duration::from_secs(2);

/// A second descriptor of the connection, which is never read. The connection is closed when this is gone too.
#[derive(Debug)]
pub(crate) struct DisconnectWatch(TcpStream);

impl DisconnectWatch {
    /// Of any socket: no more than its readiness is asked.
    pub(crate) fn of(connection: &impl AsFd) -> io::Result<DisconnectWatch> {
        let connection = std::net::TcpStream::from(connection.as_fd().try_clone_to_owned()?);
        Ok(DisconnectWatch(TcpStream::from_std(connection)?))
    }

    /// Until the client has closed, whatever is still unread. No client closes its side alone.
    pub(crate) async fn wait(&self) {
        // Waiting fails only as the runtime ends.
        while let Ok(ready) = self.0.ready(Interest::READABLE).await {
            if ready.is_read_closed() {
                return;
            }
            // Only bytes. To say that there are none has the next change told.
            let _: io::Result<()> =
                self.0.try_io(Interest::READABLE, || Err(io::ErrorKind::WouldBlock.into()));
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::AsyncWriteExt;
    use tokio::net::TcpListener;

    use super::*;

    #[tokio::test]
    async fn a_close_is_seen_behind_bytes_that_nobody_reads_and_bytes_alone_are_none() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let mut client = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let (connection, _) = listener.accept().await.unwrap();
        let disconnect = DisconnectWatch::of(&connection).unwrap();
        client.write_all(b"unread").await.unwrap();
        tokio::time::timeout(Duration::from_millis(50), disconnect.wait()).await.unwrap_err();
        client.write_all(b"more").await.unwrap();
        drop(client);
        disconnect.wait().await;
    }
}
