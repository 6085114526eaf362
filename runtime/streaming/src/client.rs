//! The other side: a client of a streaming server, over SPDY. For the command line, and for tests.

use bytes::Bytes;
use hyper::header::{CONNECTION, HOST, UPGRADE};
use hyper::upgrade::Upgraded;
use hyper::{Request, StatusCode, Uri};
use hyper_util::rt::TokioIo;
use tokio::io::ReadHalf;
use tokio::net::TcpStream;

use crate::spdy::SpdyError;
use crate::spdy::frame::Frame;
use crate::spdy::reader::Reader;
use crate::spdy::writer::Writer;

pub use crate::spdy::headers::Headers;
pub use crate::spdy::reader::Event;

/// The protocol of exec and attach.
pub const COMMAND: &str = "v4.channel.k8s.io";
/// The protocol of port-forward.
pub const FORWARD: &str = "portforward.k8s.io";

/// Why there is no session.
#[derive(Debug, thiserror::Error)]
pub enum DialError {
    /// The URL is not one that a streaming server gives.
    #[error("{0:?} is not the URL of a streaming session")]
    Url(String),
    /// Nobody there, or not for long.
    #[error("connecting to the streaming server")]
    Connection(#[from] std::io::Error),
    /// Not HTTP.
    #[error("talking to the streaming server")]
    Http(#[from] hyper::Error),
    /// The server said no.
    #[error("the streaming server answered {0}")]
    Refused(StatusCode),
    /// The session broke before its first stream.
    #[error(transparent)]
    Spdy(#[from] SpdyError),
}

/// Opens streams and sends on them. Dropping it and the receiver ends the session.
#[derive(Debug)]
pub struct Sender {
    writer: Writer,
    next: u32,
}

/// What the server sends.
#[derive(Debug)]
pub struct Receiver {
    reader: Reader<ReadHalf<TokioIo<Upgraded>>>,
}

/// Comes to a session's URL.
///
/// # Errors
/// Nobody is there, or the URL is not good (any more).
pub async fn dial(url: &str, protocol: &str) -> Result<(Sender, Receiver), DialError> {
    let uri: Uri = url.parse().map_err(|_| DialError::Url(url.to_owned()))?;
    let authority = uri.authority().ok_or_else(|| DialError::Url(url.to_owned()))?;
    let connection = TcpStream::connect(authority.as_str()).await?;
    connection.set_nodelay(true)?;
    let (mut requests, http) =
        hyper::client::conn::http1::handshake::<_, String>(TokioIo::new(connection)).await?;
    tokio::spawn(http.with_upgrades());
    let request = Request::post(uri.path())
        .header(HOST, authority.as_str())
        .header(CONNECTION, "Upgrade")
        .header(UPGRADE, "SPDY/3.1")
        .header("X-Stream-Protocol-Version", protocol)
        .body(String::new())
        .map_err(|_| DialError::Url(url.to_owned()))?;
    let response = requests.send_request(request).await?;
    if response.status() != StatusCode::SWITCHING_PROTOCOLS {
        return Err(DialError::Refused(response.status()));
    }
    let (read, write) = tokio::io::split(TokioIo::new(hyper::upgrade::on(response).await?));
    let (writer, _) = Writer::start(write)?;
    Ok((Sender { writer, next: 1 }, Receiver { reader: Reader::new(read) }))
}

impl Sender {
    /// Opens a stream; gives its number.
    ///
    /// # Errors
    /// The session has ended.
    pub async fn open(&mut self, headers: &[(&str, &str)]) -> Result<u32, SpdyError> {
        let id = self.next;
        self.next += 2;
        self.writer.open(id, headers).await.map_err(|_| ended())?;
        Ok(id)
    }

    /// Sends bytes on a stream; with `end` its last. Waits while the server does not take them.
    ///
    /// # Errors
    /// The session has ended.
    pub async fn send(&self, id: u32, bytes: Bytes, end: bool) -> Result<(), SpdyError> {
        self.writer.data(id, bytes, end).await.map_err(|_| ended())
    }

    /// Asks for an answer with this odd number.
    ///
    /// # Errors
    /// The session has ended.
    pub async fn ping(&self, number: u32) -> Result<(), SpdyError> {
        self.writer.send(Frame::Ping(number)).await.map_err(|_| ended())
    }
}

impl Receiver {
    /// The next event; `None` at the session's end. Not cancel-safe.
    ///
    /// # Errors
    /// The session broke off.
    pub async fn next(&mut self) -> Result<Option<Event>, SpdyError> {
        self.reader.next().await
    }
}

fn ended() -> SpdyError {
    std::io::Error::from(std::io::ErrorKind::BrokenPipe).into()
}
