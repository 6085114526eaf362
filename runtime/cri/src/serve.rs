//! The gRPC server on its socket: HTTP/2 in plaintext, both services, until asked to stop.

use std::sync::Arc;
use std::time::Duration;

use proto_cri::v1::image_service_server::ImageServiceServer;
use proto_cri::v1::runtime_service_server::RuntimeServiceServer;
use proto_cri::v1alpha2;
use runtime_image::Images;
use runtime_pod::Pods;
use runtime_streaming::Server;
use tokio::net::UnixListener;
use tokio::sync::watch;
use tokio_stream::wrappers::UnixListenerStream;
use tonic::transport;
use tower::layer::layer_fn;

use crate::deadline::Deadlines;
use crate::encoded::Encoded;
use crate::runtime::status::Node;

/// Longest message either way, bytes: what the kubelet's client allows (cri-client `maxMsgSize`).
const MESSAGE_BYTES_MAX: usize = 16 * 1024 * 1024;

/// Calls that one client may have open at once on one connection. The kubelet keeps one call per pod
/// worker; a client beyond this waits for its own calls.
const CALLS_PER_CONNECTION_MAX: u32 = 1024;

/// Clients that say nothing are asked whether they are still there this often: a dead one must not
/// hold its calls for ever.
const KEEPALIVE: Duration = Duration::from_secs(60);

/// Both CRI services over one set of pods and images.
#[derive(Clone, Debug)]
pub struct Cri {
    pub(crate) pods: Pods,
    pub(crate) images: Images,
    pub(crate) node: Arc<Node>,
    /// Set when the daemon stops: what would go on for ever ends then.
    pub(crate) stopping: Arc<watch::Sender<bool>>,
    pub(crate) streaming: Arc<Server>,
    pub(crate) encoded: Arc<Encoded>,
}

impl Cri {
    /// The services over these.
    pub fn new(pods: Pods, images: Images, node: Node, streaming: Arc<Server>) -> Self {
        let (stopping, encoded) = (Arc::default(), Arc::default());
        Self { pods, images, node: Arc::new(node), stopping, streaming, encoded }
    }
}

/// The server could not go on.
#[derive(Debug, thiserror::Error)]
#[error("serving CRI")]
pub struct ServeError(#[from] transport::Error);

/// Serves until `stop` resolves, then finishes the calls that run.
///
/// # Errors
/// When the listener fails.
pub async fn serve(
    cri: Cri,
    listener: UnixListener,
    stop: impl Future<Output = ()>,
) -> Result<(), ServeError> {
    let stopping = cri.stopping.clone();
    let stop = async move {
        stop.await;
        stopping.send_replace(true);
    };
    let runtime = RuntimeServiceServer::new(cri.clone())
        .max_decoding_message_size(MESSAGE_BYTES_MAX)
        .max_encoding_message_size(MESSAGE_BYTES_MAX);
    let images = ImageServiceServer::new(cri.clone())
        .max_decoding_message_size(MESSAGE_BYTES_MAX)
        .max_encoding_message_size(MESSAGE_BYTES_MAX);
    let old_runtime = v1alpha2::runtime_service_server::RuntimeServiceServer::new(cri.clone())
        .max_decoding_message_size(MESSAGE_BYTES_MAX)
        .max_encoding_message_size(MESSAGE_BYTES_MAX);
    let old_images = v1alpha2::image_service_server::ImageServiceServer::new(cri)
        .max_decoding_message_size(MESSAGE_BYTES_MAX)
        .max_encoding_message_size(MESSAGE_BYTES_MAX);
    transport::Server::builder()
        .max_concurrent_streams(CALLS_PER_CONNECTION_MAX)
        .http2_keepalive_interval(Some(KEEPALIVE))
        .layer(layer_fn(Deadlines))
        .add_service(runtime)
        .add_service(images)
        .add_service(old_runtime)
        .add_service(old_images)
        .serve_with_incoming_shutdown(UnixListenerStream::new(listener), stop)
        .await?;
    Ok(())
}
