//! A client of a streaming server, over SPDY, for the command line and for tests. With TLS it refuses servers
//! without a trusted certificate.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use hyper::header::{CONNECTION, HOST, UPGRADE};
use hyper::upgrade::Upgraded;
use hyper::{Request, StatusCode, Uri};
use hyper_util::rt::TokioIo;
use rustls::ClientConfig;
use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls_platform_verifier::Verifier;
use tokio::io::{AsyncRead, AsyncWrite, ReadHalf};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use crate::spdy::SpdyError;
use crate::spdy::frame::{CANCEL, Frame};
use crate::spdy::reader::Reader;
use crate::spdy::writer::Writer;

pub use crate::spdy::headers::Headers;
pub use crate::spdy::reader::Event;
use crate::tls::ALPN;

/// The protocol of exec and attach.
pub const COMMAND: &str = "v4.channel.k8s.io";
/// The protocol of port-forward.
pub const FORWARD: &str = "portforward.k8s.io";

/// Reason why there is no session.
#[derive(Debug, thiserror::Error)]
pub enum DialError {
    /// The URL is not one of a streaming server.
    #[error("{0:?} is not the URL of a streaming session")]
    Url(String),
    /// The server cannot be reached, or the connection broke.
    #[error("connecting to the streaming server")]
    Connection(#[from] io::Error),
    /// The server's response is not HTTP.
    #[error("talking to the streaming server")]
    Http(#[from] hyper::Error),
    /// The file of additional trusted authorities has no readable certificate.
    #[error("{} has no readable certificates in PEM", .0.display())]
    Authority(PathBuf),
    /// The server's certificate is signed neither by the system's authorities nor by those given.
    #[error("the streaming server's certificate is not trusted")]
    Untrusted(#[source] rustls::Error),
    /// The server refused the request with this status.
    #[error("the streaming server answered {0}")]
    Refused(StatusCode),
    /// The session broke before its first stream.
    #[error(transparent)]
    Spdy(#[from] SpdyError),
}

/// The sending half of a session: opens streams and sends on them. Dropping both halves ends the session.
#[derive(Debug)]
pub struct Sender {
    writer: Writer,
    next: u32,
}

/// The receiving half of a session.
#[derive(Debug)]
pub struct Receiver {
    reader: Reader<ReadHalf<TokioIo<Upgraded>>>,
}

/// Connects to a session's URL. With TLS the server's certificate must be signed by one of the system's
/// authorities, or by one in the file `authority`.
///
/// # Errors
/// The server cannot be reached or is not trusted, or the URL is invalid or has expired.
pub async fn dial(
    url: &str,
    protocol: &str,
    authority: Option<&Path>,
) -> Result<(Sender, Receiver), DialError> {
    let wrong = || DialError::Url(url.to_owned());
    let uri: Uri = url.parse().map_err(|_| wrong())?;
    let host = uri.host().ok_or_else(wrong)?.trim_matches(['[', ']']);
    let port = uri.port_u16().ok_or_else(wrong)?;
    let config = match uri.scheme_str() {
        Some("http") => None,
        Some("https") => Some(trusting(authority)?),
        _ => return Err(wrong()),
    };
    let connection = TcpStream::connect((host, port)).await?;
    connection.set_nodelay(true)?;
    let upgraded = match config {
        None => upgrade(connection, &uri, protocol).await?,
        Some(config) => {
            let name = ServerName::try_from(host.to_owned()).map_err(|_| wrong())?;
            upgrade(greet(config, name, connection).await?, &uri, protocol).await?
        }
    };
    let (read, write) = tokio::io::split(TokioIo::new(upgraded));
    let (writer, _) = Writer::start(write, None)?;
    Ok((Sender { writer, next: 1 }, Receiver { reader: Reader::new(read) }))
}

/// Sends the request. Returns the connection after its upgrade.
async fn upgrade<S>(connection: S, uri: &Uri, protocol: &str) -> Result<Upgraded, DialError>
where
    S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    let wrong = || DialError::Url(uri.to_string());
    let (mut requests, http) =
        hyper::client::conn::http1::handshake::<_, String>(TokioIo::new(connection)).await?;
    tokio::spawn(http.with_upgrades());
    let request = Request::post(uri.path())
        .header(HOST, uri.authority().ok_or_else(wrong)?.as_str())
        .header(CONNECTION, "Upgrade")
        .header(UPGRADE, "SPDY/3.1")
        .header("X-Stream-Protocol-Version", protocol)
        .body(String::new())
        .map_err(|_| wrong())?;
    let response = requests.send_request(request).await?;
    if response.status() != StatusCode::SWITCHING_PROTOCOLS {
        return Err(DialError::Refused(response.status()));
    }
    Ok(hyper::upgrade::on(response).await?)
}

fn trusting(authority: Option<&Path>) -> Result<ClientConfig, DialError> {
    let unreadable = |path: &Path| DialError::Authority(path.to_owned());
    let given: Vec<_> = match authority {
        None => Vec::new(),
        Some(path) => CertificateDer::pem_file_iter(path)
            .and_then(Iterator::collect)
            .ok()
            .filter(|given: &Vec<_>| !given.is_empty())
            .ok_or_else(|| unreadable(path))?,
    };
    let provider = Arc::new(ring::default_provider());
    let verifier =
        Verifier::new_with_extra_roots(given, Arc::clone(&provider)).map_err(DialError::Untrusted)?;
    let mut config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(DialError::Untrusted)?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(verifier))
        .with_no_client_auth();
    config.alpn_protocols = vec![ALPN.to_vec()];
    Ok(config)
}

async fn greet(
    config: ClientConfig,
    name: ServerName<'static>,
    connection: TcpStream,
) -> Result<TlsStream<TcpStream>, DialError> {
    TlsConnector::from(Arc::new(config)).connect(name, connection).await.map_err(|error| {
        match error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>()) {
            Some(inner @ rustls::Error::InvalidCertificate(_)) => DialError::Untrusted(inner.clone()),
            _ => DialError::Connection(error),
        }
    })
}

impl Sender {
    /// Opens a stream and returns its number.
    ///
    /// # Errors
    /// The session has ended.
    pub async fn open(&mut self, headers: &[(&str, &str)]) -> Result<u32, SpdyError> {
        let id = self.next;
        self.next += 2;
        self.writer.open(id, headers).await.map_err(|_| ended())?;
        Ok(id)
    }

    /// Sends bytes on a stream, and with `end` closes it for sending. Waits until the server takes them.
    ///
    /// # Errors
    /// The session has ended.
    pub async fn send(&self, id: u32, bytes: Bytes, end: bool) -> Result<(), SpdyError> {
        self.writer.data(id, bytes, end).await.map_err(|_| ended())
    }

    /// Breaks a stream off, in both directions.
    ///
    /// # Errors
    /// The session has ended.
    pub async fn reset(&self, id: u32) -> Result<(), SpdyError> {
        self.writer.send(Frame::Reset { id, status: CANCEL }).await.map_err(|_| ended())
    }
}

impl Receiver {
    /// Returns the next event, or `None` at the session's end. Not cancel-safe.
    ///
    /// # Errors
    /// The session broke off.
    pub async fn next(&mut self) -> Result<Option<Event>, SpdyError> {
        self.reader.next().await
    }
}

fn ended() -> SpdyError {
    io::Error::from(io::ErrorKind::BrokenPipe).into()
}
