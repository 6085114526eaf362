//! Routes each call to a side. A path outside the table goes to our own services unchanged. So does every
//! call without an upstream.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use tonic::body::Body;
use tonic::codegen::http;
use tonic::server::Grpc;
use tonic::{Request, Response, Status};
use tower::{Service, service_fn};
use tracing::debug;

use super::Upstream;
use super::lists::RawStream;
use super::raw::Raw;
use super::route::{Call, Listed, Route};
use super::sides::{Ours, Sides};
use crate::stream::{COMPRESSION, MESSAGE_BYTES_MAX};

/// The CRI services of this daemon, with or without an upstream.
#[derive(Clone, Debug)]
pub(crate) struct WithUpstream<S> {
    pub(crate) ours: S,
    pub(crate) upstream: Option<Arc<Upstream>>,
}

impl<S> Service<http::Request<Body>> for WithUpstream<S>
where
    S: Service<http::Request<Body>, Response = http::Response<Body>, Error = Infallible>
        + Clone
        + Send
        + Sync
        + 'static,
    S::Future: Send + 'static,
{
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Infallible>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        self.ours.poll_ready(context)
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        let routed = self.upstream.as_ref().and_then(|upstream| {
            let call = Call::of_path(request.uri().path())?;
            let ours = Ours::new(self.ours.clone());
            Some((call, Sides { ours, upstream: Arc::clone(upstream) }))
        });
        let Some((call, sides)) = routed else { return Box::pin(self.ours.call(request)) };
        Box::pin(async move { Ok(answer(call, sides, request).await) })
    }
}

async fn answer(call: Call, sides: Sides, request: http::Request<Body>) -> http::Response<Body> {
    let mut server = Grpc::new(Raw)
        .accept_compressed(COMPRESSION)
        .max_decoding_message_size(MESSAGE_BYTES_MAX)
        .max_encoding_message_size(MESSAGE_BYTES_MAX);
    let rpc = call.rpc;
    let call = Arc::new(call);
    let response = match call.route {
        Route::Stream(..) | Route::Events => {
            let service = service_fn(move |request| {
                let (call, sides) = (Arc::clone(&call), sides.clone());
                async move { streamed(&call, &sides, request).await }
            });
            server.server_streaming(service, request).await
        }
        _ => {
            let service = service_fn(move |request| {
                let (call, sides) = (Arc::clone(&call), sides.clone());
                async move { answered(&call, &sides, request).await }
            });
            server.unary(service, request).await
        }
    };
    debug!(rpc, status = ?response.headers().get("grpc-status"), "routed");
    response
}

async fn answered(call: &Call, sides: &Sides, request: Request<Bytes>) -> Result<Response<Bytes>, Status> {
    match call.route {
        Route::Run => sides.run(call, request).await,
        Route::Pod => sides.call_by_id(call, Listed::Pods, request).await,
        Route::Container => sides.call_by_id(call, Listed::Containers, request).await,
        Route::Create => sides.create(call, request).await,
        Route::List(listed) => sides.list(call, listed, request).await,
        Route::Status => sides.status(call, request).await,
        Route::RuntimeConfig => sides.runtime_config(call, request).await,
        Route::Configure => sides.configure(call, request).await,
        Route::ImageStatus => sides.image_status(call, request).await,
        Route::PullImage => sides.pull_image(call, request).await,
        Route::RemoveImage => sides.remove_image(call, request).await,
        Route::ImageFsInfo => sides.image_fs_info(call, request).await,
        Route::Stream(..) | Route::Events => Err(Status::internal("a stream is no single answer")),
    }
}

async fn streamed(
    call: &Call,
    sides: &Sides,
    request: Request<Bytes>,
) -> Result<Response<RawStream>, Status> {
    match call.route {
        Route::Stream(listed, unary_rpc) => sides.stream(call, listed, unary_rpc, request).await,
        _ => sides.events(call, request).await,
    }
}
