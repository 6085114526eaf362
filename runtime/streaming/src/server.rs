//! The HTTP server, by TLS where it has a certificate: a request names its session by a one-time token, and what it
//! wants to speak by its headers; the connection is the session's from then on.

use std::cell::Cell;
use std::collections::VecDeque;
use std::convert::Infallible;
use std::io;
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

use crate::bypass::Bypass;
use crate::channels::{Command, Forward, Streams};
use crate::hangup::Hangup;
use crate::idle::Watched;
use crate::negotiate::{Purpose, Spoken, negotiate};
use crate::pending::{PENDING_MAX, Pending};
use crate::tls::{Identity, Tls, TlsError};
use crate::{command, forward, tunnel};

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

/// Why a session cannot be offered.
#[derive(Debug, thiserror::Error)]
pub enum ServerError {
    /// [`PENDING_MAX`] is reached.
    #[error("{PENDING_MAX} streaming sessions wait for their clients already")]
    TooManyPending,
    /// The kernel gave no random bytes for a token.
    #[error("no random bytes for a token")]
    NoRandomness,
    /// The address cannot be listened on.
    #[error("listening for streaming clients on {address}")]
    Listen {
        /// As configured.
        address: SocketAddr,
        /// Why.
        source: io::Error,
    },
    /// URLs name the address, so it must be one that can be dialled.
    #[error("streaming clients cannot dial {0}: it is no address of a host")]
    Unspecified(SocketAddr),
    /// The certificate or its key is no good.
    #[error("serving streaming clients by TLS")]
    Tls(#[from] TlsError),
}

/// A session whose client has not come.
enum Session {
    Command(&'static str, command::Session),
    Forward(Arc<dyn Forward>),
}

impl Session {
    /// The first part of its URL's path.
    fn path(&self) -> &'static str {
        match self {
            Session::Command(path, _) => path,
            Session::Forward(_) => "portforward",
        }
    }
}

/// More descriptors of a client's connection.
struct Aside {
    hangup: Hangup,
    bypass: Option<Bypass>,
}

/// The server. It ends with the runtime that it was started on.
pub struct Server {
    address: SocketAddr,
    identity: Option<Identity>,
    pending: Pending<Session>,
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
        self.offer(Session::Command("exec", command::Session { streams, command }))
    }

    /// Offers an attach; gives its URL.
    ///
    /// # Errors
    /// Too many are offered already.
    pub fn attach(&self, streams: Streams, command: Box<dyn Command>) -> Result<String, ServerError> {
        self.offer(Session::Command("attach", command::Session { streams, command }))
    }

    /// Offers a pod's ports; gives the URL.
    ///
    /// # Errors
    /// Too many are offered already.
    pub fn forward(&self, forward: Arc<dyn Forward>) -> Result<String, ServerError> {
        self.offer(Session::Forward(forward))
    }

    fn offer(&self, session: Session) -> Result<String, ServerError> {
        let path = session.path();
        let token = self.pending.put(session)?;
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
        let bypass = self.identity.is_none().then(|| Bypass::of(&connection)).transpose();
        let (hangup, bypass) = match (Hangup::of(&connection), bypass) {
            (Ok(hangup), Ok(bypass)) => (hangup, bypass),
            (Err(error), _) | (_, Err(error)) => {
                return tracing::warn!(%error, "a streaming client cannot be served");
            }
        };
        let server = Arc::clone(self);
        let task = tokio::spawn(async move {
            let Some(identity) = &server.identity else {
                return server.converse(connection, Aside { hangup, bypass }).await;
            };
            match tokio::time::timeout(REQUEST, identity.accept(connection)).await {
                Ok(Ok(connection)) => server.converse(connection, Aside { hangup, bypass }).await,
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
    async fn converse<S>(&self, connection: S, aside: Aside)
    where
        S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
    {
        let aside = Cell::new(Some(aside));
        let service = service_fn(move |request| {
            let response = self.answer(request, aside.take());
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
    fn answer(&self, mut request: Request<Incoming>, aside: Option<Aside>) -> Response<String> {
        let session = aside.and_then(|aside| Some((self.find(request.uri().path())?, aside)));
        let Some((session, aside)) = session else {
            return refusal(StatusCode::NOT_FOUND, "no such session: a URL is good once, and for a minute");
        };
        let purpose = match &session {
            Session::Command(..) => Purpose::Command,
            Session::Forward(_) => Purpose::Forward,
        };
        match negotiate(request.method(), request.headers(), purpose) {
            Ok(agreed) => {
                tokio::spawn(serve(hyper::upgrade::on(&mut request), agreed.spoken, session, aside));
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
    fn find(&self, path: &str) -> Option<Session> {
        let (kind, token) = path.strip_prefix('/')?.split_once('/')?;
        self.pending.take(token).filter(|session| session.path() == kind)
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
async fn serve(upgrade: OnUpgrade, spoken: Spoken, session: Session, aside: Aside) {
    let (path, Aside { hangup, bypass }) = (session.path(), aside);
    let io = match upgrade.await {
        Ok(upgraded) => Watched::new(TokioIo::new(upgraded)),
        Err(error) => {
            tracing::debug!(path, %error, "a streaming client went away before its session began");
            return;
        }
    };
    let outcome = match (spoken, session) {
        (Spoken::SpdyCommand(version), Session::Command(_, session)) => {
            let bypass = bypass.map(|bypass| bypass.tells(io.passed()));
            command::over_spdy(io, version, session, hangup, bypass).await
        }
        (Spoken::WebSocketCommand(framing), Session::Command(_, session)) => {
            command::over_websocket(io, framing, session, hangup).await;
            Ok(())
        }
        (Spoken::SpdyForward, Session::Forward(session)) => forward::serve(io, session, hangup).await,
        (Spoken::TunnelForward, Session::Forward(session)) => {
            forward::serve(tunnel::open(io).await, session, hangup).await
        }
        // Negotiation gives a command's protocols to commands and a forward's to forwards.
        _ => Ok(()),
    };
    if let Err(error) = outcome {
        tracing::debug!(path, %error, "a streaming session broke off");
    }
}
