//! The connection to the upstream, with its health.
//!
//! ```text
//!            a check succeeds: lists are taken again
//!   Down ───────────────────────────────────────────► Up
//!    ▲ │ a check each second                          │ │ a check each ten seconds
//!    │ └─┘                                            │ └─┘
//!    └────────────────────────────────────────────────┘
//!      the check times out or gets an error, or a connection breaks
//! ```
//!
//! A call's error is an answer, and a slow answer may be a long one: neither makes the upstream down. A call
//! without an answer in time triggers the next check. While the upstream is down no call waits for it: calls
//! about its pods are refused at once.

use std::error::Error as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use bytes::Bytes;
use hyper_util::rt::TokioIo;
use tokio::net::UnixStream;
use tokio::sync::{Notify, watch};
use tonic::body::Body;
use tonic::client::{Grpc, GrpcService};
use tonic::codec::Streaming;
use tonic::codegen::http::uri::PathAndQuery;
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Request, Response, Status, TimeoutExpired};
use tower::service_fn;
use tracing::{Instrument, info, warn};

use super::raw::Raw;
use crate::requests;
use crate::stream::MESSAGE_BYTES_MAX;
use crate::traced::{onward, onward_ended};

/// Time limit for the upstream's answers from memory. A list of the node waits that long for it. The
/// kubelet's own timeout is two minutes.
pub(super) const ANSWERS_WITHIN: Duration = Duration::from_secs(5);

/// Time limit for usage and metrics. The upstream reads them from the kernel, container by container.
pub(super) const FIGURES_WITHIN: Duration = Duration::from_secs(30);

/// The upstream's health. The error is the reason, for people.
pub(super) type State = Result<(), String>;

/// The connection to the upstream, with its health.
#[derive(Debug)]
pub(super) struct Link {
    socket: PathBuf,
    channel: Channel,
    state: watch::Sender<State>,
    /// Notified after a call without an answer in time.
    doubted: Notify,
}

impl Link {
    /// Creates a link, down until the first check. It does not dial.
    pub(super) fn new(socket: &Path) -> Link {
        let path = socket.to_owned();
        let dial = move |_| {
            let path = path.clone();
            async move { UnixStream::connect(path).await.map(TokioIo::new) }
        };
        // The address only appears in the calls' headers. The connector uses the socket.
        let channel = Endpoint::from_static("http://upstream").connect_with_connector_lazy(service_fn(dial));
        let state = watch::Sender::new(Err("it has not answered yet".to_owned()));
        Link { socket: socket.to_owned(), channel, state, doubted: Notify::new() }
    }

    /// The state, and its later changes.
    pub(super) fn state(&self) -> watch::Receiver<State> {
        self.state.subscribe()
    }

    pub(super) fn is_up(&self) -> bool {
        self.state.borrow().is_ok()
    }

    /// The error of a call needing the upstream while it is down.
    pub(super) fn unavailable(&self) -> Status {
        let why = self.state.borrow().clone().err().unwrap_or_default();
        Status::unavailable(format!("the runtime at {} does not answer: {why}", self.socket.display()))
    }

    /// Returns after a call without an answer in time.
    pub(super) async fn doubted(&self) {
        self.doubted.notified().await;
    }

    pub(super) fn up(&self) {
        if !self.is_up() {
            info!(socket = %self.socket.display(), "the upstream runtime answers");
            drop(self.state.send_replace(Ok(())));
        }
    }

    pub(super) fn down(&self, why: String) {
        let was_up = self.is_up();
        if was_up {
            warn!(socket = %self.socket.display(), why, "the upstream runtime does not answer; its pods are listed as last seen");
        }
        if was_up || *self.state.borrow() != Err(why.clone()) {
            drop(self.state.send_replace(Err(why)));
        }
    }

    /// Makes a call. Its caller's timeout applies.
    pub(super) async fn call(
        &self,
        path: &str,
        mut request: Request<Bytes>,
    ) -> Result<Response<Bytes>, Status> {
        if !self.is_up() {
            return Err(self.unavailable());
        }
        let began = Instant::now();
        let span = onward(path, request.metadata_mut().as_mut());
        let answer = unary(self.channel.clone(), path, request).instrument(span.clone()).await;
        onward_ended(&span, &answer);
        let code = answer.as_ref().map_or_else(Status::code, |_| Code::Ok);
        requests::answered_upstream(path, code, began.elapsed());
        match answer {
            Err(status) if is_out_of_time(&status) => Err(Status::deadline_exceeded(reason(&status))),
            Err(status) if is_broken(&status) => {
                self.down(reason(&status));
                Err(self.unavailable())
            }
            answer => answer,
        }
    }

    /// Requests data from the upstream's memory, whether it is up or not. The upstream's own errors are
    /// returned, too.
    pub(super) async fn fetch(&self, path: &str, request: Request<Bytes>) -> Result<Bytes, Status> {
        self.fetch_within(ANSWERS_WITHIN, path, request).await
    }

    /// Like [`fetch`](Self::fetch), with this time limit.
    pub(super) async fn fetch_within(
        &self,
        bound: Duration,
        path: &str,
        mut request: Request<Bytes>,
    ) -> Result<Bytes, Status> {
        let span = onward(path, request.metadata_mut().as_mut());
        let asking = unary(self.channel.clone(), path, request).instrument(span.clone());
        let answer = tokio::time::timeout(bound, asking).await.unwrap_or_else(|_| {
            self.doubted.notify_one();
            Err(Status::deadline_exceeded(format!("no answer within {} s", bound.as_secs())))
        });
        onward_ended(&span, &answer);
        if let Err(status) = &answer
            && is_broken(status)
        {
            self.down(reason(status));
        }
        Ok(answer?.into_inner())
    }

    /// Opens a stream of answers.
    pub(super) async fn stream(
        &self,
        path: &str,
        request: Request<Bytes>,
    ) -> Result<Streaming<Bytes>, Status> {
        let asked = tokio::time::timeout(ANSWERS_WITHIN, self.open(path, request)).await;
        asked.unwrap_or_else(|_| Err(Status::unavailable("the upstream runtime opens no stream")))
    }

    /// Opens a stream whose first answer may come at any time. gRPC's server for Go sends the headers with
    /// it, and the stream counts as open by them.
    pub(super) async fn open(
        &self,
        path: &str,
        mut request: Request<Bytes>,
    ) -> Result<Streaming<Bytes>, Status> {
        if !self.is_up() {
            return Err(self.unavailable());
        }
        let span = onward(path, request.metadata_mut().as_mut());
        let answer = streaming(self.channel.clone(), path, request).instrument(span.clone()).await;
        onward_ended(&span, &answer);
        answer
    }
}

/// Makes a call of one message.
pub(super) async fn unary<S>(
    service: S,
    path: &str,
    request: Request<Bytes>,
) -> Result<Response<Bytes>, Status>
where
    S: GrpcService<Body>,
    S::ResponseBody: Send + 'static,
    <S::ResponseBody as tonic::codegen::Body>::Error: Into<tonic::codegen::StdError>,
{
    let (mut client, path) = client(service, path).await?;
    client.unary(request, path, Raw).await
}

/// Makes a call with a stream as its answer.
pub(super) async fn streaming<S>(
    service: S,
    path: &str,
    request: Request<Bytes>,
) -> Result<Streaming<Bytes>, Status>
where
    S: GrpcService<Body>,
    S::ResponseBody: Send + 'static,
    <S::ResponseBody as tonic::codegen::Body>::Error: Into<tonic::codegen::StdError>,
{
    let (mut client, path) = client(service, path).await?;
    client.server_streaming(request, path, Raw).await.map(Response::into_inner)
}

async fn client<S: GrpcService<Body>>(service: S, path: &str) -> Result<(Grpc<S>, PathAndQuery), Status> {
    let path = PathAndQuery::try_from(path).map_err(|error| Status::internal(format!("{path}: {error}")))?;
    let mut client = Grpc::new(service)
        .max_decoding_message_size(MESSAGE_BYTES_MAX)
        .max_encoding_message_size(MESSAGE_BYTES_MAX);
    client.ready().await.map_err(|error| {
        let error: tonic::codegen::StdError = error.into();
        Status::from_error(error)
    })?;
    Ok((client, path))
}

/// Returns true if the call ended because of its caller's timeout. This says nothing about the upstream.
pub(super) fn is_out_of_time(status: &Status) -> bool {
    let mut source = status.source();
    while let Some(error) = source {
        if error.is::<TimeoutExpired>() {
            return true;
        }
        source = error.source();
    }
    false
}

/// Returns true if the call ended with its connection and not by an answer. Only then has the status a
/// source.
pub(super) fn is_broken(status: &Status) -> bool {
    status.source().is_some()
        && !is_out_of_time(status)
        && matches!(status.code(), Code::Unavailable | Code::Unknown | Code::Internal | Code::Cancelled)
}

/// The message of a status with its causes.
pub(super) fn reason(status: &Status) -> String {
    let mut text = status.message().to_owned();
    let mut source = status.source();
    while let Some(error) = source {
        let said = error.to_string();
        if !text.contains(&said) {
            text = format!("{text}: {said}");
        }
        source = error.source();
    }
    text
}
