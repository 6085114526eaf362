//! Port-forward: a connection to a port on the pod's loopback, shared by the containers. The bytes pass
//! through unread.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::fd::AsFd;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::sync::{Semaphore, SemaphorePermit};

/// Most simultaneous connections: half of the agent's streams. Logs and commands have the other half.
const CONNECTIONS_MAX: usize = 512;
static ROOM: Semaphore = Semaphore::const_new(CONNECTIONS_MAX);

/// Timeout of a connection. Loopback answers at once, unless the listener's queue is full.
const CONNECT: Duration = Duration::from_secs(5);

/// One connection to a port.
pub(crate) struct Forward {
    connection: TcpStream,
    _place: SemaphorePermit<'static>,
}

impl Forward {
    /// Connects to the port. The error is the text for the host.
    pub(crate) async fn connect(port: u32) -> Result<Forward, String> {
        let port =
            u16::try_from(port).ok().filter(|port| *port > 0).ok_or_else(|| format!("{port} is no port"))?;
        let place = ROOM.try_acquire();
        let place =
            place.map_err(|_| format!("{CONNECTIONS_MAX} connections are forwarded to the pod already"))?;
        Ok(Forward { connection: connect(port).await?, _place: place })
    }

    /// Carries bytes both ways, each to its own end. A server that hangs holds no place for a client that is
    /// gone.
    pub(crate) async fn serve<S>(self, host: S) -> io::Result<()>
    where
        S: AsyncRead + AsyncWrite + AsFd,
    {
        let Forward { connection, _place } = self;
        runtime_ways::carry_across(host, connection).await
    }
}

async fn connect(port: u16) -> Result<TcpStream, String> {
    let mut first = None;
    for address in [IpAddr::V4(Ipv4Addr::LOCALHOST), IpAddr::V6(Ipv6Addr::LOCALHOST)] {
        let connecting = TcpStream::connect((address, port));
        match tokio::time::timeout(CONNECT, connecting).await.unwrap_or(Err(io::ErrorKind::TimedOut.into())) {
            Ok(connection) => {
                // The sender has already joined its bytes into packets.
                let _ = connection.set_nodelay(true);
                return Ok(connection);
            }
            Err(error) => {
                first.get_or_insert(format!("connecting to {address}, port {port}: {error}"));
            }
        }
    }
    Err(first.unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::{TcpListener, UnixStream};

    use super::*;

    #[tokio::test]
    async fn each_side_s_half_close_is_passed_on() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let (mut host, theirs) = UnixStream::pair().unwrap();
        let connection = Forward::connect(u32::from(port)).await.unwrap();
        let serving = tokio::spawn(connection.serve(theirs));
        let (mut server, _) = listener.accept().await.unwrap();
        host.write_all(b"question").await.unwrap();
        host.shutdown().await.unwrap();
        let mut text = String::new();
        server.read_to_string(&mut text).await.unwrap();
        assert_eq!(text, "question");
        server.write_all(b"answer").await.unwrap();
        drop(server);
        let mut text = String::new();
        host.read_to_string(&mut text).await.unwrap();
        assert_eq!(text, "answer");
        serving.await.unwrap().unwrap();
    }

    #[tokio::test]
    async fn an_answer_of_a_server_that_closes_without_reading_is_carried() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let (mut host, theirs) = UnixStream::pair().unwrap();
        let connection = Forward::connect(u32::from(port)).await.unwrap();
        let serving = tokio::spawn(connection.serve(theirs));
        let (mut server, _) = listener.accept().await.unwrap();
        host.write_all(b"question").await.unwrap();
        server.read_exact(&mut [0]).await.unwrap();
        server.write_all(b"too large").await.unwrap();
        // A close with unread bytes is a reset, so the rest of the question cannot be written.
        drop(server);
        host.write_all(b", and its rest").await.unwrap();
        let mut answer = String::new();
        host.read_to_string(&mut answer).await.unwrap();
        assert_eq!(answer, "too large");
        drop(host);
        let _ = serving.await.unwrap();
    }

    #[tokio::test]
    async fn a_server_that_hangs_holds_no_place_for_a_client_that_is_gone() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let (mut host, theirs) = UnixStream::pair().unwrap();
        let connection = Forward::connect(u32::from(port)).await.unwrap();
        let (mut server, _) = listener.accept().await.unwrap();
        let serving = tokio::spawn(connection.serve(theirs));
        host.write_all(b"question").await.unwrap();
        drop(host);
        serving.await.unwrap().unwrap();
        let mut text = String::new();
        server.read_to_string(&mut text).await.unwrap();
        assert_eq!(text, "question");
    }

    #[tokio::test]
    async fn only_ipv6_is_found_too_and_a_refusal_says_so() {
        let listener = TcpListener::bind("[::1]:0").await.unwrap();
        let port = u32::from(listener.local_addr().unwrap().port());
        Forward::connect(port).await.unwrap();
        drop(listener);
        let error = Forward::connect(port).await.err().unwrap();
        assert!(error.contains("127.0.0.1") && error.contains("refused"), "{error}");
        assert!(Forward::connect(0).await.is_err() && Forward::connect(70_000).await.is_err());
    }
}
