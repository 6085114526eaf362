//! Serves: ttrpc and streams on their vsock ports, and then the word to the host that both are there.

use std::convert::Infallible;
use std::future::pending;
use std::io;
use std::sync::Arc;

use proto_agent::agent_ttrpc::create_agent;
use proto_agent::port;
use tokio::sync::Semaphore;
use tokio_vsock::{VMADDR_CID_ANY, VsockAddr, VsockListener};
use ttrpc::asynchronous::transport::Listener;

use crate::network;
use crate::pod::Pod;
use crate::ready;
use crate::rpc::Service;
use crate::streams::accept;

/// Stream connections at a time: three for each process of a large pod.
const STREAMS_MAX: usize = 1024;

/// Why the agent cannot serve.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ServeError {
    #[error("cannot start the runtime")]
    Runtime(#[source] io::Error),
    #[error(transparent)]
    Network(#[from] network::NetworkError),
    #[error("cannot take the signals of processes that end")]
    Reaper(#[source] io::Error),
    #[error("cannot listen on vsock port {port}")]
    Listen { port: u32, source: io::Error },
    #[error("cannot serve ttrpc")]
    Ttrpc(#[source] ttrpc::Error),
}

/// Serves until the VM is closed. `entered_ns` is when the agent was.
pub(crate) fn run(entered_ns: u64) -> Result<Infallible, ServeError> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .max_blocking_threads(2)
        .build()
        .map_err(ServeError::Runtime)?;
    runtime.block_on(serve(entered_ns))
}

async fn serve(entered_ns: u64) -> Result<Infallible, ServeError> {
    let pod = Arc::new(Pod::default());
    pod.reaper.start().map_err(ServeError::Reaper)?;
    network::loopback_up().await?;

    let streams = listen(port::STREAM)?;
    tokio::spawn(serve_streams(streams, Arc::clone(&pod)));

    let listener = Listener::new(listen(port::RPC)?.incoming());
    let service = create_agent(Arc::new(Service::new(pod)));
    let mut server = ttrpc::asynchronous::Server::new().add_listener(listener).register_service(service);
    server.start().await.map_err(ServeError::Ttrpc)?;

    if let Err(error) = ready::push(entered_ns).await {
        // A daemon that comes back can still dial us.
        let error = agent_container::launch::Failure::from_error(&error).message;
        tracing::warn!(error, "the host was not told that the agent is ready");
    }
    pending().await
}

fn listen(port: u32) -> Result<VsockListener, ServeError> {
    VsockListener::bind(VsockAddr::new(VMADDR_CID_ANY, port))
        .map_err(|source| ServeError::Listen { port, source })
}

async fn serve_streams(listener: VsockListener, pod: Arc<Pod>) {
    let room = Arc::new(Semaphore::new(STREAMS_MAX));
    loop {
        // The semaphore is never closed.
        let Ok(place) = Arc::clone(&room).acquire_owned().await else { return };
        let connection = match listener.accept().await {
            Ok((connection, _)) => connection,
            Err(error) => {
                tracing::warn!(%error, "a stream connection cannot be accepted");
                tokio::time::sleep(std::time::Duration::from_millis(100)).await;
                continue;
            }
        };
        let pod = Arc::clone(&pod);
        tokio::spawn(async move {
            if let Err(error) = accept::serve(&pod, connection).await {
                tracing::debug!(%error, "a stream connection ended");
            }
            drop(place);
        });
    }
}
