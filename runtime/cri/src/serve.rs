//! The gRPC server on its socket: HTTP/2 in plaintext, both CRI services and our own for images, until asked
//! to stop.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use futures::Stream;
use proto_cri::v1::image_service_server::ImageServiceServer;
use proto_cri::v1::runtime_service_server::RuntimeServiceServer;
use proto_cri::v1alpha2;
use runtime_cdi::Registry;
use runtime_image::Images;
use runtime_pod::Pods;
use runtime_streaming::Server;
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::watch;
use tonic::transport;
use tower::layer::layer_fn;
use tracing::warn;

use crate::authority::Mended;
use crate::deadline::Deadlines;
use crate::encoded::Encoded;
use crate::requests;
use crate::runtime::status::Node;
use crate::scratch_disk::scratch_disk;
use crate::stream::{COMPRESSION, MESSAGE_BYTES_MAX};
use crate::traced::Traced;
use crate::transfers::Transfers;
use crate::upstream::{Upstream, UpstreamConfig, WithUpstream};

/// Most open calls of one client on one connection. It is also the most calls the client may cancel at once
/// before they are handled: by default the library hangs up on a client after twenty. The kubelet keeps one
/// call per pod worker. A client beyond this limit waits for its own calls.
const CALLS_PER_CONNECTION_MAX: u32 = 1024;

/// Longest metadata of a call, in bytes. The library's default of 16 KiB is within reach of callers'
/// credentials and traces. Go's server accepts 16 MiB, more than any caller sends.
const METADATA_BYTES_MAX: u32 = 1 << 20;

/// Interval of keepalives to silent clients: a dead one must not hold its calls for ever.
const KEEPALIVE: Duration = Duration::from_secs(60);

/// Time limit for running calls when the daemon stops. Most end in milliseconds. A pull or a start goes on
/// without its caller, or the next daemon finds it again.
const DRAIN: Duration = Duration::from_secs(5);

/// The pause after a listener's failure, for example for lack of descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Both CRI services over one set of pods and images.
#[derive(Clone, Debug)]
pub struct Cri {
    pub(crate) pods: Pods,
    pub(crate) images: Images,
    pub(crate) cdi: Registry,
    pub(crate) node: Arc<Node>,
    /// Set when the daemon stops. Endless work ends then.
    pub(crate) stopping: Arc<watch::Sender<bool>>,
    pub(crate) streaming: Arc<Server>,
    pub(crate) encoded: Arc<Encoded>,
    /// A path on the file system of the writable layers. Read once, because a disk may hang later.
    pub(crate) scratch_disk: PathBuf,
    upstream: Option<Arc<Upstream>>,
}

impl Cri {
    /// Creates the services over these. Blocks on the disk.
    pub fn new(pods: Pods, images: Images, node: Node, streaming: Arc<Server>) -> Self {
        requests::register();
        let (stopping, encoded) = (Arc::default(), Arc::default());
        let scratch_disk = scratch_disk(images.directory(), &pods.scratch_dir());
        let node = Arc::new(node);
        let cdi = Registry::default();
        Self { pods, images, cdi, node, stopping, streaming, encoded, scratch_disk, upstream: None }
    }

    /// Returns whether the upstream answers, if there is one.
    pub(crate) fn upstream_is_up(&self) -> Option<bool> {
        self.upstream.as_ref().map(|upstream| upstream.is_up())
    }

    /// Returns the services with another runtime behind them. Blocks on the disk.
    #[must_use]
    pub fn with_upstream(mut self, config: UpstreamConfig) -> Self {
        self.upstream = Some(Arc::new(Upstream::new(config, self.pods.clone(), self.images.clone())));
        self
    }
}

/// The server failed.
#[derive(Debug, thiserror::Error)]
#[error("serving CRI")]
pub struct ServeError(#[from] transport::Error);

/// Serves until `stop` resolves. Then it waits a few seconds for the running calls.
///
/// # Errors
/// When the listener fails.
pub async fn serve(
    cri: Cri,
    listener: UnixListener,
    stop: impl Future<Output = ()>,
) -> Result<(), ServeError> {
    let upstream = cri.upstream.clone();
    let watching = upstream.clone().map(|upstream| tokio::spawn(upstream.watch()));
    let stopping = cri.stopping.clone();
    let stopped = stopping.subscribe();
    let stop = async move {
        stop.await;
        stopping.send_replace(true);
    };
    let runtime = RuntimeServiceServer::new(cri.clone())
        .accept_compressed(COMPRESSION)
        .max_decoding_message_size(MESSAGE_BYTES_MAX)
        .max_encoding_message_size(MESSAGE_BYTES_MAX);
    let images = ImageServiceServer::new(cri.clone())
        .accept_compressed(COMPRESSION)
        .max_decoding_message_size(MESSAGE_BYTES_MAX)
        .max_encoding_message_size(MESSAGE_BYTES_MAX);
    let old_runtime = v1alpha2::runtime_service_server::RuntimeServiceServer::new(cri.clone())
        .accept_compressed(COMPRESSION)
        .max_decoding_message_size(MESSAGE_BYTES_MAX)
        .max_encoding_message_size(MESSAGE_BYTES_MAX);
    let transfers =
        Transfers::new(cri.images.clone(), Arc::clone(&cri.stopping), cri.upstream.clone()).server();
    let old_images = v1alpha2::image_service_server::ImageServiceServer::new(cri)
        .accept_compressed(COMPRESSION)
        .max_decoding_message_size(MESSAGE_BYTES_MAX)
        .max_encoding_message_size(MESSAGE_BYTES_MAX);
    let serving = transport::Server::builder()
        .max_concurrent_streams(CALLS_PER_CONNECTION_MAX)
        .http2_max_header_list_size(METADATA_BYTES_MAX)
        .http2_max_pending_accept_reset_streams(Some(CALLS_PER_CONNECTION_MAX as usize))
        .http2_keepalive_interval(Some(KEEPALIVE))
        .layer(layer_fn(Traced))
        .layer(layer_fn(Deadlines))
        .layer(layer_fn(move |ours| WithUpstream { ours, upstream: upstream.clone() }))
        .add_service(runtime)
        .add_service(images)
        .add_service(old_runtime)
        .add_service(old_images)
        .add_service(transfers)
        .serve_with_incoming_shutdown(incoming(listener), stop);
    let served = drained(serving, stopped).await;
    if let Some(watching) = watching {
        watching.abort();
    }
    match served {
        Some(served) => Ok(served?),
        None => {
            warn!(after = ?DRAIN, "calls still running are left");
            Ok(())
        }
    }
}

/// Waits for the end of `serving`. `None` once the daemon has been stopping for [`DRAIN`].
async fn drained<T>(serving: impl Future<Output = T>, mut stopping: watch::Receiver<bool>) -> Option<T> {
    let late = async {
        if stopping.wait_for(|stopping| *stopping).await.is_err() {
            // The sender is gone, so no end can be requested any more.
            std::future::pending::<()>().await;
        }
        tokio::time::sleep(DRAIN).await;
    };
    tokio::select! {
        served = serving => Some(served),
        () = late => None,
    }
}

/// The clients' connections. If one cannot be accepted, the failure is logged and the next one is awaited.
/// The server would take an error for the end of one connection and ask again at once. That would keep a
/// thread busy.
fn incoming(listener: UnixListener) -> impl Stream<Item = io::Result<Mended<UnixStream>>> {
    let accept = async |listener: &UnixListener| {
        let (connection, _) = listener.accept().await?;
        Ok(Mended::new(connection))
    };
    accepted(listener, accept)
}

fn accepted<L, C>(
    listener: L,
    accept: impl AsyncFn(&L) -> io::Result<C>,
) -> impl Stream<Item = io::Result<C>> {
    futures::stream::unfold((listener, accept), async |(listener, accept)| {
        loop {
            match accept(&listener).await {
                Ok(connection) => return Some((Ok(connection), (listener, accept))),
                Err(error) => {
                    warn!(%error, "a client cannot be accepted");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            }
        }
    })
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use futures::StreamExt;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn calls_that_hang_hold_a_stop_for_a_few_seconds_only() {
        let stopping = watch::Sender::new(false);
        let serving = drained(std::future::pending::<()>(), stopping.subscribe());
        tokio::pin!(serving);
        assert!(tokio::time::timeout(100 * DRAIN, &mut serving).await.is_err(), "nobody asked for an end");
        stopping.send_replace(true);
        assert_eq!(serving.await, None);
    }

    #[tokio::test(start_paused = true)]
    async fn calls_that_end_in_time_are_waited_for() {
        let stopping = watch::Sender::new(true);
        let last_call = async {
            tokio::time::sleep(DRAIN / 2).await;
            7
        };
        assert_eq!(drained(last_call, stopping.subscribe()).await, Some(7));
    }

    #[tokio::test(start_paused = true)]
    async fn a_lack_of_descriptors_ends_no_server_and_keeps_no_thread_busy() {
        let tries = Cell::new(0);
        let accept = async |tries: &Cell<u32>| {
            tries.set(tries.get() + 1);
            if tries.get() <= 3 { Err(io::Error::from_raw_os_error(24)) } else { Ok("client") }
        };
        let began = tokio::time::Instant::now();
        let clients = accepted(tries, accept);
        tokio::pin!(clients);
        assert_eq!(clients.next().await.unwrap().unwrap(), "client");
        assert_eq!(began.elapsed(), 3 * ACCEPT_PAUSE, "one try in each pause");
    }
}
