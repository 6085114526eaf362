//! Detects a client's close while earlier input is still waiting, when a read cannot show it. Also defines
//! how long the server waits for a client to close. Nothing here reads or writes a byte.

use std::io;
use std::os::fd::AsFd;
use std::time::Duration;

use tokio::io::Interest;
use tokio::net::TcpStream;

/// How long a client may take to close the connection after the outcome, before the server does. Much of the
/// output may still be on its way, in an API server's buffers or behind a slow line, and clients discard
/// unread output when their connection ends. A client's close is noticed at once.
pub(crate) const CLOSE_TIMEOUT: Duration = Duration::from_secs(10 * 60);

/// How long the server waits for a client's close after a broken session. The client expects no more output
/// then.
pub(crate) const BROKEN_CLOSE_TIMEOUT: Duration = Duration::from_secs(2);

/// A second descriptor of the connection, never read from. The connection stays open until this one is
/// dropped, too.
#[derive(Debug)]
pub(crate) struct DisconnectWatch(TcpStream);

impl DisconnectWatch {
    /// Watches a socket of any kind. Only its readiness is used.
    pub(crate) fn of(connection: &impl AsFd) -> io::Result<DisconnectWatch> {
        let connection = std::net::TcpStream::from(connection.as_fd().try_clone_to_owned()?);
        Ok(DisconnectWatch(TcpStream::from_std(connection)?))
    }

    /// Returns when the client has closed, regardless of unread bytes. Clients of these protocols never close
    /// one side only.
    pub(crate) async fn wait(&self) {
        // Waiting only fails when the runtime ends.
        while let Ok(ready) = self.0.ready(Interest::READABLE).await {
            if ready.is_read_closed() {
                return;
            }
            // Only bytes have arrived. Pretending that there are none makes tokio report the next change.
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
    async fn a_close_is_seen_behind_unread_bytes_and_bytes_alone_are_no_close() {
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
