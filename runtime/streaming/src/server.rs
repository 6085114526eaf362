//! The HTTP server, with TLS if it has a certificate. A request names its session by a one-time token and the
//! protocol by its headers. After the upgrade the connection belongs to the session. The server does not know
//! the sessions' work.

use std::cell::Cell;
use std::collections::VecDeque;
use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use hyper::body::Incoming;
use hyper::header::{CONNECTION, HeaderValue};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::upgrade::OnUpgrade;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use socket2::{SockRef, TcpKeepalive};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::AbortHandle;

use crate::channels::{Command, Forward, Streams};
use crate::disconnect::DisconnectWatch;
use crate::error::ServerError;
use crate::idle::IdleTimeout;
use crate::negotiate::{Protocol, Purpose, negotiate};
use crate::pending::Pending;
use crate::splice::SpliceSender;
use crate::tls::{Identity, Tls};
use crate::{command, counters, forward, port_channels, websocket};

/// Time limit for a client's request.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);

/// Longest request head, in bytes.
const REQUEST_BYTES_MAX: usize = 16 * 1024;

/// Most connections waiting for a request. One more closes the oldest: honest clients are quick.
const HALF_OPEN_MAX: usize = 256;

/// TCP keepalive for silent clients. A vanished host does not close its connections. The end of a client with
/// untaken bytes waits behind those bytes until the client's kernel gives them up.
const KEEPALIVE_AFTER: Duration = Duration::from_secs(30);
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(10);
const KEEPALIVE_PROBES: u32 = 3;

/// The pause after a listener's failure, for example for lack of descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// A session still without its client.
enum Offer {
    Command(&'static str, command::Session),
    Forward(Arc<dyn Forward>),
}

impl Offer {
    /// Returns the first part of the URL's path.
    fn path(&self) -> &'static str {
        match self {
            Offer::Command(path, _) => path,
            Offer::Forward(_) => "portforward",
        }
    }
}

/// Further descriptors of a client's connection, created before HTTP owns the first one.
struct ExtraDescriptors {
    disconnect: DisconnectWatch,
    splice: Option<SpliceSender>,
}

/// The server. It ends with the runtime on which it was started.
pub struct Server {
    address: SocketAddr,
    identity: Option<Identity>,
    pending: Pending<Offer>,
    half_open: Mutex<VecDeque<AbortHandle>>,
}

impl std::fmt::Debug for Server {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Server").field("address", &self.address).finish_non_exhaustive()
    }
}

impl Server {
    /// Listens and serves, with TLS if a certificate is given. Port 0 means any free port.
    ///
    /// # Errors
    /// The address is taken or undialable, or the certificate cannot be used for it.
    pub async fn start(address: SocketAddr, tls: Option<Tls>) -> Result<Arc<Server>, ServerError> {
        if address.ip().is_unspecified() {
            return Err(ServerError::Unspecified(address));
        }
        let identity = tls.map(|files| Identity::open(files, address.ip())).transpose()?;
        counters::register();
        let failed = |source| ServerError::Listen { address, source };
        let listener = TcpListener::bind(address).await.map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        let server =
            Arc::new(Server { address, identity, pending: Pending::new(), half_open: Mutex::default() });
        tokio::spawn(Arc::clone(&server).accept(listener));
        Ok(server)
    }

    /// Offers an exec and returns its URL.
    ///
    /// # Errors
    /// Too many sessions wait for their clients.
    pub fn exec(&self, streams: Streams, command: Box<dyn Command>) -> Result<String, ServerError> {
        self.offer(Offer::Command("exec", command::Session { streams, command }))
    }

    /// Offers an attach and returns its URL.
    ///
    /// # Errors
    /// Too many sessions wait for their clients.
    pub fn attach(&self, streams: Streams, command: Box<dyn Command>) -> Result<String, ServerError> {
        self.offer(Offer::Command("attach", command::Session { streams, command }))
    }

    /// Offers a pod's ports and returns the URL.
    ///
    /// # Errors
    /// Too many sessions wait for their clients.
    pub fn forward(&self, forward: Arc<dyn Forward>) -> Result<String, ServerError> {
        self.offer(Offer::Forward(forward))
    }

    fn offer(&self, offer: Offer) -> Result<String, ServerError> {
        let path = offer.path();
        let token = self.pending.put(offer)?;
        let scheme = if self.identity.is_some() { "https" } else { "http" };
        Ok(format!("{scheme}://{}/{path}/{token}", self.address))
    }

    async fn accept(self: Arc<Self>, listener: TcpListener) {
        loop {
            match listener.accept().await {
                Ok((connection, _)) => self.admit(connection),
                Err(error) => {
                    tracing::warn!(%error, "a streaming client cannot be accepted");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            }
        }
    }

    /// Serves a new connection in its own task: handshake, request, response.
    fn admit(self: &Arc<Self>, connection: TcpStream) {
        // A keystroke must not wait for more bytes.
        let _ = connection.set_nodelay(true);
        let alive = TcpKeepalive::new()
            .with_time(KEEPALIVE_AFTER)
            .with_interval(KEEPALIVE_INTERVAL)
            .with_retries(KEEPALIVE_PROBES);
        let _ = SockRef::from(&connection).set_tcp_keepalive(&alive);
        // Both are of the TCP connection. With TLS, too, its end is the client's end.
        let splice = self.identity.is_none().then(|| SpliceSender::of(&connection)).transpose();
        let (disconnect, splice) = match (DisconnectWatch::of(&connection), splice) {
            (Ok(disconnect), Ok(splice)) => (disconnect, splice),
            (Err(error), _) | (_, Err(error)) => {
                return tracing::warn!(%error, "a streaming client cannot be served");
            }
        };
        let server = Arc::clone(self);
        let task = tokio::spawn(async move {
            let Some(identity) = &server.identity else {
                return server.converse(connection, ExtraDescriptors { disconnect, splice }).await;
            };
            match tokio::time::timeout(REQUEST_TIMEOUT, identity.accept(connection)).await {
                Ok(Ok(connection)) => {
                    server.converse(connection, ExtraDescriptors { disconnect, splice }).await;
                }
                Ok(Err(error)) => tracing::debug!(%error, "a streaming client's handshake failed"),
                Err(_) => tracing::debug!("a streaming client's handshake timed out"),
            }
        });
        let mut half_open = self.half_open.lock().unwrap_or_else(PoisonError::into_inner);
        half_open.retain(|task| !task.is_finished());
        if half_open.len() >= HALF_OPEN_MAX
            && let Some(oldest) = half_open.pop_front()
        {
            oldest.abort();
        }
        half_open.push_back(task.abort_handle());
    }

    /// Reads the request and answers it.
    async fn converse<S>(&self, connection: S, descriptors: ExtraDescriptors)
    where
        S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
    {
        let descriptors = Cell::new(Some(descriptors));
        let service = service_fn(move |request| {
            let response = self.answer(request, descriptors.take());
            async move { Ok::<_, Infallible>(response) }
        });
        let serving = http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(REQUEST_TIMEOUT)
            .max_buf_size(REQUEST_BYTES_MAX)
            .serve_connection(TokioIo::new(connection), service)
            .with_upgrades();
        // A body without an end must not keep a client here either.
        if let Ok(Err(error)) = tokio::time::timeout(2 * REQUEST_TIMEOUT, serving).await {
            tracing::debug!(%error, "a streaming client's request failed");
        }
    }

    /// Answers the connection's only request. A second one finds no descriptors.
    fn answer(
        &self,
        mut request: Request<Incoming>,
        descriptors: Option<ExtraDescriptors>,
    ) -> Response<String> {
        let found = descriptors.and_then(|descriptors| Some((self.find(request.uri().path())?, descriptors)));
        let Some((offer, descriptors)) = found else {
            return refusal(StatusCode::NOT_FOUND, "no such session: a URL is good once, and for a minute");
        };
        let purpose = match &offer {
            Offer::Command(..) => Purpose::Command,
            Offer::Forward(_) => Purpose::Forward,
        };
        match negotiate(request.method(), request.headers(), purpose) {
            Ok(agreed) => {
                tokio::spawn(serve(hyper::upgrade::on(&mut request), agreed.protocol, offer, descriptors));
                let mut response = Response::new(String::new());
                *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
                *response.headers_mut() = agreed.headers;
                response
            }
            Err(refused) => {
                let mut response = refusal(refused.status, &refused.text);
                response.headers_mut().extend(refused.headers());
                response
            }
        }
    }

    /// Takes the session of `/<kind>/<token>`.
    fn find(&self, path: &str) -> Option<Offer> {
        let (kind, token) = path.strip_prefix('/')?.split_once('/')?;
        self.pending.take(token).filter(|offer| offer.path() == kind)
    }
}

fn refusal(status: StatusCode, text: &str) -> Response<String> {
    let mut response = Response::new(format!("{text}\n"));
    *response.status_mut() = status;
    // Set here and not by the server's settings. Those would set it for an upgrade too, and Go's client takes
    // a closing connection for one without an upgrade.
    response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
    response
}

/// Carries one session to its end.
async fn serve(upgrade: OnUpgrade, protocol: Protocol, offer: Offer, descriptors: ExtraDescriptors) {
    let (path, ExtraDescriptors { disconnect, splice }) = (offer.path(), descriptors);
    let io = match upgrade.await {
        Ok(upgraded) => IdleTimeout::new(TokioIo::new(upgraded)),
        Err(error) => {
            tracing::debug!(path, %error, "a streaming client went away before its session began");
            return;
        }
    };
    let _session = counters::Session::begin(path);
    let outcome = match (protocol, offer) {
        (Protocol::SpdyCommand(version), Offer::Command(_, session)) => {
            let splice = splice.map(|splice| splice.with_activity(io.activity()));
            command::over_spdy(io, version, session, disconnect, splice).await
        }
        (Protocol::WebSocketCommand(framing), Offer::Command(_, session)) => {
            command::over_websocket(io, framing, session, disconnect).await;
            Ok(())
        }
        (Protocol::SpdyForward, Offer::Forward(session)) => forward::serve(io, session, disconnect).await,
        (Protocol::TunnelForward, Offer::Forward(session)) => {
            forward::serve(websocket::byte_stream(io).await, session, disconnect).await
        }
        (Protocol::ChannelsForward { base64 }, Offer::Forward(session)) => {
            port_channels::serve(io, base64, session, disconnect).await;
            Ok(())
        }
        // Negotiation gives a command's protocols to commands and a forward's to forwards.
        _ => Ok(()),
    };
    if let Err(error) = outcome {
        tracing::debug!(path, %error, "a streaming session broke off");
    }
}
