//! The HTTP server, by TLS where it has a certificate: a request names its session by a one-time token, and what it
//! wants to speak by its headers; the connection is the session's from then on.

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
use crate::{command, forward, websocket};

/// How long a client may take for its request.
const REQUEST: Duration = Duration::from_secs(10);

/// Longest request head, in bytes.
const REQUEST_BYTES_MAX: usize = 16 * 1024;

/// Connections at a time whose request has not come. One more, and the oldest is closed: those who
/// mean it are quick.
const HALF_OPEN_MAX: usize = 256;

/// Silent clients' kernels are asked whether they still know of the connection: a host that is gone does not say so,
/// and the end of a client who sent more than is taken waits behind that until its kernel gives it up.
const ASKED_AFTER: Duration = Duration::from_secs(30);
const ASKED_EVERY: Duration = Duration::from_secs(10);
const ASKED_TIMES: u32 = 3;

/// After the listener failed, for want of descriptors say.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// A session whose client has not come.
enum Offer {
    Command(&'static str, command::Session),
    Forward(Arc<dyn Forward>),
}

impl Offer {
    /// The first part of its URL's path.
    fn path(&self) -> &'static str {
        match self {
            Offer::Command(path, _) => path,
            Offer::Forward(_) => "portforward",
        }
    }
}

/// More descriptors of a client's connection.
struct ExtraDescriptors {
    disconnect: DisconnectWatch,
    splice: Option<SpliceSender>,
}

/// The server. It ends with the runtime that it was started on.
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
    /// Listens and serves, by TLS where a certificate is given. Port 0 is any free one.
    ///
    /// # Errors
    /// The address is taken, or is not one that a client could dial, or the certificate is no good for it.
    pub async fn start(address: SocketAddr, tls: Option<Tls>) -> Result<Arc<Server>, ServerError> {
        if address.ip().is_unspecified() {
            return Err(ServerError::Unspecified(address));
        }
        let identity = tls.map(|files| Identity::open(files, address.ip())).transpose()?;
        let failed = |source| ServerError::Listen { address, source };
        let listener = TcpListener::bind(address).await.map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        let server =
            Arc::new(Server { address, identity, pending: Pending::new(), half_open: Mutex::default() });
        tokio::spawn(Arc::clone(&server).accept(listener));
        Ok(server)
    }

    /// Offers an exec; gives its URL.
    ///
    /// # Errors
    /// Too many are offered already.
    pub fn exec(&self, streams: Streams, command: Box<dyn Command>) -> Result<String, ServerError> {
        self.offer(Offer::Command("exec", command::Session { streams, command }))
    }

    /// Offers an attach; gives its URL.
    ///
    /// # Errors
    /// Too many are offered already.
    pub fn attach(&self, streams: Streams, command: Box<dyn Command>) -> Result<String, ServerError> {
        self.offer(Offer::Command("attach", command::Session { streams, command }))
    }

    /// Offers a pod's ports; gives the URL.
    ///
    /// # Errors
    /// Too many are offered already.
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

    /// Takes the handshake and reads the request, in a task of its own.
    fn admit(self: &Arc<Self>, connection: TcpStream) {
        // Keystrokes are small, and each counts.
        let _ = connection.set_nodelay(true);
        let alive =
            TcpKeepalive::new().with_time(ASKED_AFTER).with_interval(ASKED_EVERY).with_retries(ASKED_TIMES);
        let _ = SockRef::from(&connection).set_tcp_keepalive(&alive);
        // Of the TCP connection: its end is the client's, by TLS too.
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
            match tokio::time::timeout(REQUEST, identity.accept(connection)).await {
                Ok(Ok(connection)) => {
                    server.converse(connection, ExtraDescriptors { disconnect, splice }).await
                }
                Ok(Err(error)) => tracing::debug!(%error, "a streaming client's handshake failed"),
                Err(_) => tracing::debug!("a streaming client's handshake has no end"),
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
            .header_read_timeout(REQUEST)
            .max_buf_size(REQUEST_BYTES_MAX)
            .serve_connection(TokioIo::new(connection), service)
            .with_upgrades();
        // A body that never ends is no way to stay either.
        if let Ok(Err(error)) = tokio::time::timeout(2 * REQUEST, serving).await {
            tracing::debug!(%error, "a streaming client's request failed");
        }
    }

    /// There is one request for each connection.
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

    /// The session of `/<kind>/<token>`.
    fn find(&self, path: &str) -> Option<Offer> {
        let (kind, token) = path.strip_prefix('/')?.split_once('/')?;
        self.pending.take(token).filter(|offer| offer.path() == kind)
    }
}

fn refusal(status: StatusCode, text: &str) -> Response<String> {
    let mut response = Response::new(format!("{text}\n"));
    *response.status_mut() = status;
    // Said here and not by the server's settings: those would say it of an upgrade too, and Go's client takes a
    // connection that closes for one that was not upgraded.
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
            forward::serve(websocket::open(io).await, session, disconnect).await
        }
        // Negotiation gives a command's protocols to commands and a forward's to forwards.
        _ => Ok(()),
    };
    if let Err(error) = outcome {
        tracing::debug!(path, %error, "a streaming session broke off");
    }
}
