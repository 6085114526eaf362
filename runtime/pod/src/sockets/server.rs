//! Accepts streams opened by programs of a pod's guest, and connects those with a known token to their
//! sockets. There is one task for each pod with such streams, beside the driver. The driver offers and
//! withdraws sockets.
//!
//! All input is a guest's. A stream without a known token in time is closed. This is counted and rarely
//! logged.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use runtime_connector::ConnectError;
use runtime_spec::{SOCKET_TOKEN_BYTES, SocketToken};
use tokio::io::AsyncReadExt;
use tokio::net::UnixStream;
use tokio::sync::Semaphore;
use tokio::task::AbortHandle;
use tokio::time::{Instant, sleep, timeout};

use super::follow;
use super::offers::{OfferError, Offers};
use crate::backend::ConnectorSpec;
use crate::counters::{self, SocketOutcome};
use crate::error::chain_of;
use crate::live::Live;
use crate::node::Node;

/// How long a stream may take to send its token. The agent sends it at once.
const TOKEN_WITHIN: Duration = Duration::from_secs(5);

/// Streams of one guest being connected at once: as many as its VMM allows.
const CONNECTING_MAX: usize = 64;

/// Pause after a failure to accept a stream: the next one may fail too.
const PAUSE: Duration = Duration::from_millis(100);

/// Least time between two log lines of one pod: programs control the rate of events.
const LOG_EVERY: Duration = Duration::from_secs(10);

/// A pod's server. The tasks of a server end with the handle, or with the VM, and the connectors with them.
#[derive(Debug)]
pub(crate) struct SocketServer {
    shared: Arc<Shared>,
    live: Live,
    serving: AbortHandle,
    /// The tasks following containers' sockets in directories, by container.
    following: HashMap<String, AbortHandle>,
}

#[derive(Debug)]
struct Shared {
    node: Arc<Node>,
    pod_id: String,
    offers: Offers,
    logged: Mutex<Option<Instant>>,
}

/// A socket available to a container.
#[derive(Clone, Debug)]
pub(crate) struct OfferedSocket {
    pub(crate) token: SocketToken,
    /// The socket on the node.
    pub(crate) path: PathBuf,
    /// Whether the socket lies in a directory mounted by the container. If so, the guest must be notified
    /// when it is recreated.
    pub(crate) in_directory: bool,
}

impl SocketServer {
    /// A server without offers. It closes every stream.
    pub(crate) fn start(node: Arc<Node>, live: Live, pod_id: String) -> SocketServer {
        let shared = Arc::new(Shared { node, pod_id, offers: Offers::default(), logged: Mutex::default() });
        let serving = tokio::spawn(serve(Arc::clone(&shared), live.clone())).abort_handle();
        SocketServer { shared, live, serving, following: HashMap::new() }
    }

    /// Offers a container's sockets.
    pub(crate) fn add(&mut self, spec: ConnectorSpec, sockets: Vec<OfferedSocket>) {
        if sockets.is_empty() {
            return;
        }
        let id = spec.container_id.clone();
        let in_directories = sockets.iter().filter(|socket| socket.in_directory);
        let followed: Vec<PathBuf> = in_directories.map(|socket| socket.path.clone()).collect();
        self.shared.offers.add(spec, sockets.into_iter().map(|socket| (socket.token, socket.path)));
        if !followed.is_empty() {
            let following = follow::follow(self.shared.node.clone(), self.live.clone(), id.clone(), followed);
            let task = tokio::spawn(following).abort_handle();
            self.following.insert(id, task).inspect(AbortHandle::abort);
        }
    }

    /// Ends all connectors, including those just being started. The caller removes the cgroups.
    pub(crate) async fn end(self) {
        self.serving.abort();
        for connector in self.shared.offers.remove_all() {
            connector.end().await;
        }
    }

    /// Removes a container's offers, and ends its connections.
    pub(crate) fn remove(&mut self, container_id: &str) {
        self.following.remove(container_id).inspect(AbortHandle::abort);
        if let Some(connector) = self.shared.offers.remove(container_id) {
            let node = Arc::clone(&self.shared.node);
            tokio::spawn(async move { connector.close(&*node.backends.sockets).await });
        }
    }
}

impl Drop for SocketServer {
    fn drop(&mut self) {
        self.serving.abort();
        self.following.values().for_each(AbortHandle::abort);
    }
}

/// Takes streams until the VM has ended.
async fn serve(shared: Arc<Shared>, live: Live) {
    let room = Arc::new(Semaphore::new(CONNECTING_MAX));
    loop {
        // The semaphore is never closed.
        let Ok(place) = Arc::clone(&room).acquire_owned().await else { return };
        let Ok(stream) = live.vm.program_stream().await else {
            tokio::select! {
                biased;
                _ = live.vm.stopped() => return,
                // The daemon could not accept this one, for lack of memory for example.
                () = sleep(PAUSE) => continue,
            }
        };
        let shared = Arc::clone(&shared);
        tokio::spawn(async move {
            let _place = place;
            let outcome = shared.connect(stream).await;
            counters::host_socket_connection(outcome);
        });
    }
}

impl Shared {
    async fn connect(&self, mut stream: UnixStream) -> SocketOutcome {
        let mut token = [0; SOCKET_TOKEN_BYTES];
        let read = timeout(TOKEN_WITHIN, stream.read_exact(&mut token)).await;
        let offer = matches!(read, Ok(Ok(_))).then(|| self.offers.get(&SocketToken(token))).flatten();
        let Some(offer) = offer else {
            self.log(|pod| {
                tracing::warn!(pod, "a program of a guest asked for a socket of the node without a token");
            });
            return SocketOutcome::Unauthorized;
        };
        let connected = offer.connect(&*self.node.backends.sockets, stream).await;
        let Err(error) = connected else {
            return SocketOutcome::Connected;
        };
        self.log(|pod| {
            let (container, socket) = (offer.container_id(), offer.path.display());
            let error = chain_of(&error);
            tracing::warn!(pod, container, %socket, error, "a container was not connected to a socket of the node");
        });
        match error {
            OfferError::Connect(ConnectError::Refused(_)) => SocketOutcome::Refused,
            _ => SocketOutcome::Failed,
        }
    }

    /// Logs, unless something was logged a moment ago.
    fn log(&self, line: impl FnOnce(&str)) {
        let now = Instant::now();
        let mut logged = self.logged.lock().unwrap_or_else(PoisonError::into_inner);
        if logged.is_none_or(|before| now.duration_since(before) >= LOG_EVERY) {
            *logged = Some(now);
            line(&self.pod_id);
        }
    }
}
