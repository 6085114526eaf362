//! Serves ttrpc and streams on their vsock ports, and then reports to the host: both are served. The calls
//! are in [`crate::rpc`], the streams in [`crate::stream_server`].

use std::convert::Infallible;
use std::future::pending;
use std::io;
use std::sync::Arc;

use proto_agent::agent_ttrpc::create_agent;
use proto_agent::port;
use ttrpc::asynchronous::transport::Listener;

use crate::host_listener::HostListener;
use crate::network;
use crate::pod::Pod;
use crate::ready;
use crate::rpc::Service;
use crate::stream_server;

/// Why the agent cannot serve.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ServeError {
    #[error("cannot start the runtime")]
    Runtime(#[source] io::Error),
    #[error(transparent)]
    Network(#[from] network::NetworkError),
    #[error("cannot receive SIGCHLD")]
    Reaper(#[source] io::Error),
    #[error("cannot listen on vsock port {port}")]
    Listen { port: u32, source: io::Error },
    #[error("cannot serve ttrpc")]
    Ttrpc(#[source] ttrpc::Error),
}

/// Serves until the VM is closed. `entered_ns` is the time of the agent's start, in nanoseconds since the
/// kernel started. `restored` is true if the guest is a clone of a template.
pub(crate) fn run(entered_ns: u64, restored: bool) -> Result<Infallible, ServeError> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .max_blocking_threads(2)
        .build()
        .map_err(ServeError::Runtime)?;
    runtime.block_on(serve(entered_ns, restored))
}

async fn serve(entered_ns: u64, restored: bool) -> Result<Infallible, ServeError> {
    let pod = Arc::new(Pod::new(restored));
    pod.reaper.start().map_err(ServeError::Reaper)?;
    if restored {
        let pod = Arc::clone(&pod);
        // Configuration waits for this, and reports its failure.
        tokio::spawn(async move { pod.fetched_ahead.discard().await });
    }
    network::loopback_up().await?;

    let streams = listen(port::STREAM)?;
    tokio::spawn(stream_server::run(streams, Arc::clone(&pod)));

    let listener = Listener::new(listen(port::RPC)?.incoming());
    let service = create_agent(Arc::new(Service::new(pod)));
    let mut server = ttrpc::asynchronous::Server::new().add_listener(listener).register_service(service);
    server.start().await.map_err(ServeError::Ttrpc)?;

    if let Err(error) = ready::push(entered_ns).await {
        // A returning daemon can still dial the agent.
        let error = agent_container::launch::Failure::from_error(&error).message;
        tracing::warn!(error, "cannot report readiness to the host");
    }
    pending().await
}

fn listen(port: u32) -> Result<HostListener, ServeError> {
    HostListener::bind(port).map_err(|source| ServeError::Listen { port, source })
}
