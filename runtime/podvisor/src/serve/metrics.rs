//! The HTTP server of metrics for Prometheus. Owns the connections and the paths, and none of the content.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Context;
use hyper::body::Incoming;
use hyper::header::{ALLOW, CONTENT_TYPE, HeaderValue};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use runtime_cri::Exposition;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::{JoinHandle, JoinSet};
use tracing::{debug, info, warn};

/// Concurrent clients. Scrapers keep a connection for each path, and a node may have several teams' pairs of
/// them, and a person or two. Others wait to be accepted.
const CLIENTS_MAX: usize = 32;

/// The interval between two lines in the log about clients that wait.
const WAITING_SAID_EACH: Duration = Duration::from_secs(3600);

/// Timeout for the arrival of a request. A client with an open connection sends the next one within this
/// time, or dials again.
const REQUEST_WITHIN: Duration = Duration::from_secs(120);

/// Longest time of a connection, so a client that reads no answers does not hold its slot.
const CONNECTION_TIME_MAX: Duration = Duration::from_secs(3600);

/// The pause after a failure of the listener, for example when out of descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// The server. It may have no listener.
#[derive(Debug)]
pub(super) struct Figures {
    exposition: Exposition,
    serving: Option<Serving>,
}

#[derive(Debug)]
struct Serving {
    /// The configured address.
    address: SocketAddr,
    /// Owns the listener and the connections.
    accepting: JoinHandle<()>,
}

impl Figures {
    /// A server without a listener.
    pub(super) fn new(exposition: Exposition) -> Figures {
        Figures { exposition, serving: None }
    }

    /// Serves on this address from now on, or nowhere. Connections to another address are closed.
    ///
    /// # Errors
    /// The server cannot listen on the address. Then nothing changes.
    pub(super) async fn move_to(&mut self, address: Option<SocketAddr>) -> anyhow::Result<()> {
        let old = self.serving.as_ref().map(|serving| serving.address);
        if old == address {
            return Ok(());
        }
        let Some(address) = address else {
            self.stop().await;
            info!("metrics are no longer served");
            return Ok(());
        };
        let listener = match (bind(address).await, old) {
            (Ok(listener), _) => listener,
            // The kernel does not allow the same port for all addresses and for one of them at once.
            (Err(_), Some(old)) if old.port() == address.port() => {
                self.stop().await;
                match bind(address).await {
                    Ok(listener) => listener,
                    Err(error) => {
                        let again = bind(old).await.map(|listener| self.serve(old, listener));
                        if let Err(error) = again {
                            warn!(error = format!("{error:#}"), "metrics are no longer served");
                        }
                        return Err(error);
                    }
                }
            }
            (Err(error), _) => return Err(error),
        };
        self.stop().await;
        info!(address = %listener.local_addr()?, "metrics are served");
        self.serve(address, listener);
        Ok(())
    }

    fn serve(&mut self, address: SocketAddr, listener: TcpListener) {
        let accepting = tokio::spawn(accept(listener, self.exposition.clone()));
        self.serving = Some(Serving { address, accepting });
    }

    /// Closes the listener and all connections.
    async fn stop(&mut self) {
        if let Some(serving) = self.serving.take() {
            serving.accepting.abort();
            // The listener is closed when its task has ended.
            let _ = serving.accepting.await;
        }
    }
}

async fn bind(address: SocketAddr) -> anyhow::Result<TcpListener> {
    let listener = TcpListener::bind(address).await;
    listener.with_context(|| format!("listening on {address} (metrics.address)"))
}

async fn accept(listener: TcpListener, exposition: Exposition) {
    let mut places = Places { free: Arc::new(Semaphore::new(CLIENTS_MAX)), said: None };
    // Connections end with this task.
    let mut connections = JoinSet::new();
    loop {
        while connections.try_join_next().is_some() {}
        let Some(place) = places.take().await else { return };
        match listener.accept().await {
            Ok((connection, _)) => {
                let exposition = exposition.clone();
                connections.spawn(async move {
                    let _ =
                        tokio::time::timeout(CONNECTION_TIME_MAX, converse(connection, &exposition)).await;
                    drop(place);
                });
            }
            Err(error) => {
                warn!(%error, "a client of the metrics cannot be accepted");
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

/// Places for clients.
struct Places {
    free: Arc<Semaphore>,
    /// When the log said last that clients wait.
    said: Option<Instant>,
}

impl Places {
    /// Waits for a free place. `None` never comes: nobody closes the semaphore.
    async fn take(&mut self) -> Option<OwnedSemaphorePermit> {
        if let Ok(place) = Arc::clone(&self.free).try_acquire_owned() {
            return Some(place);
        }
        if self.said.is_none_or(|said| said.elapsed() >= WAITING_SAID_EACH) {
            warn!(clients = CLIENTS_MAX, "no place is free for another client of the metrics; it waits");
            self.said = Some(Instant::now());
        }
        Arc::clone(&self.free).acquire_owned().await.ok()
    }
}

async fn converse(connection: TcpStream, exposition: &Exposition) {
    let service =
        service_fn(|request| async move { Ok::<_, Infallible>(answer(&request, exposition).await) });
    let serving = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(REQUEST_WITHIN)
        .serve_connection(TokioIo::new(connection), service);
    if let Err(error) = serving.await {
        debug!(%error, "a client of the metrics went away");
    }
}

async fn answer(request: &Request<Incoming>, exposition: &Exposition) -> Response<String> {
    if !matches!(*request.method(), Method::GET | Method::HEAD) {
        let mut response = plain(StatusCode::METHOD_NOT_ALLOWED, "metrics are read by GET\n");
        response.headers_mut().insert(ALLOW, HeaderValue::from_static("GET, HEAD"));
        return response;
    }
    let text = match request.uri().path() {
        "/metrics" => exposition.daemon().await,
        "/metrics/cadvisor" => exposition.containers().await,
        _ => return plain(StatusCode::NOT_FOUND, "there are /metrics and /metrics/cadvisor\n"),
    };
    match text {
        Ok(text) => {
            let mut response = Response::new(text);
            response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(runtime_cri::CONTENT_TYPE));
            response
        }
        Err(error) => plain(StatusCode::INTERNAL_SERVER_ERROR, &format!("{error}\n")),
    }
}

fn plain(status: StatusCode, text: &str) -> Response<String> {
    let mut response = Response::new(text.to_owned());
    *response.status_mut() = status;
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_client_beyond_the_places_waits_for_one_and_the_log_says_so_once() {
        let mut places = Places { free: Arc::new(Semaphore::new(2)), said: None };
        let (first, _second) = (places.take().await.unwrap(), places.take().await.unwrap());
        assert!(places.said.is_none());
        assert!(futures::poll!(std::pin::pin!(places.take())).is_pending());
        let said = places.said.unwrap();
        drop(first);
        let _third = places.take().await.unwrap();
        assert!(futures::poll!(std::pin::pin!(places.take())).is_pending());
        assert_eq!(places.said, Some(said));
    }
}
