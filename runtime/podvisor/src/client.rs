//! A CRI client of the daemon's socket, for the commands of the CLI. Each command's own calls are in its
//! file.

use std::path::{Path, PathBuf};

use anyhow::anyhow;
use hyper_util::rt::TokioIo;
use proto_cri::v1::image_service_client::ImageServiceClient;
use proto_cri::v1::runtime_service_client::RuntimeServiceClient;
use proto_images::v1::images_client::ImagesClient;
use tokio::net::UnixStream;
use tonic::transport::{Channel, Endpoint, Uri};

/// Longest message either way, in bytes: as much as the kubelet's client allows (cri-client `maxMsgSize`).
const MESSAGE_BYTES_MAX: usize = 16 * 1024 * 1024;

/// The services of one daemon: both of CRI, and its own for images.
#[derive(Clone, Debug)]
pub(crate) struct Client {
    pub(crate) runtime: RuntimeServiceClient<Channel>,
    pub(crate) images: ImageServiceClient<Channel>,
    pub(crate) transfers: ImagesClient<Channel>,
}

/// Connects to the socket. Fails at once if nothing listens there.
pub(crate) async fn connect(socket: &Path) -> Result<Client, tonic::transport::Error> {
    let path: PathBuf = socket.to_owned();
    // The URI is needed by HTTP/2 and otherwise ignored: the connector knows the path.
    let channel = Endpoint::from_static("http://localhost")
        .connect_with_connector(tower::service_fn(move |_: Uri| {
            let path = path.clone();
            async move { UnixStream::connect(path).await.map(TokioIo::new) }
        }))
        .await?;
    Ok(Client::of(channel))
}

impl Client {
    /// The services over one connection.
    pub(crate) fn of(channel: Channel) -> Client {
        Client {
            runtime: RuntimeServiceClient::new(channel.clone()).max_decoding_message_size(MESSAGE_BYTES_MAX),
            images: ImageServiceClient::new(channel.clone()).max_decoding_message_size(MESSAGE_BYTES_MAX),
            transfers: ImagesClient::new(channel),
        }
    }
}

/// Returns the message of the daemon's refusal. Takes the status by value, as `map_err` gives it.
#[expect(clippy::needless_pass_by_value, reason = "map_err gives the status away")]
pub(crate) fn refused(status: tonic::Status) -> anyhow::Error {
    anyhow!("{}", status.message())
}

/// Runs a command of the CLI to its end, on its own runtime. Does not wait for blocking reads: a read of
/// standard input may never return.
pub(crate) fn block_on<T>(command: impl Future<Output = anyhow::Result<T>>) -> anyhow::Result<T> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let outcome = runtime.block_on(command);
    runtime.shutdown_background();
    outcome
}
