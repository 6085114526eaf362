//! A fake runtime: the services of a daemon, or an upstream on a socket.

use std::collections::{HashMap, HashSet};
use std::convert::Infallible;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};

use bytes::Bytes;
use futures::future::BoxFuture;
use futures::{StreamExt, stream};
use prost::Message;
use tonic::body::Body;
use tonic::codegen::http;
use tonic::server::{Grpc, NamedService};
use tonic::{Request, Response, Status};
use tower::{Service, service_fn};

use super::super::raw::Raw;

/// A runtime with one message or error for each RPC. Others are unknown to it.
#[derive(Clone, Default)]
pub(super) struct Fake(Arc<Mutex<State>>);

#[derive(Default)]
struct State {
    answers: HashMap<String, Result<Bytes, Status>>,
    asked: Vec<(String, Bytes)>,
    /// The `traceparent` of each call with one.
    parents: Vec<String>,
    hangs: bool,
    /// RPCs without an answer.
    hanging: HashSet<String>,
    /// Streams break off after their message.
    breaks_off: bool,
}

impl Fake {
    pub(super) fn answers(&self, rpc: &str, message: &impl Message) {
        self.0.lock().unwrap().answers.insert(rpc.into(), Ok(message.encode_to_vec().into()));
    }

    pub(super) fn answers_nonsense(&self, rpc: &str) {
        let nonsense = Bytes::from_static(&[0x0a, 2, 0xff, 0xff]);
        self.0.lock().unwrap().answers.insert(rpc.into(), Ok(nonsense));
    }

    /// No call is answered from now on.
    pub(super) fn hangs(&self) {
        self.0.lock().unwrap().hangs = true;
    }

    /// Calls of this RPC are not answered from now on.
    pub(super) fn hangs_at(&self, rpc: &str) {
        self.0.lock().unwrap().hanging.insert(rpc.into());
    }

    /// Calls are answered again.
    pub(super) fn goes_on(&self) {
        self.0.lock().unwrap().hangs = false;
    }

    /// Each stream breaks off after its message from now on.
    pub(super) fn breaks_off(&self) {
        self.0.lock().unwrap().breaks_off = true;
    }

    pub(super) fn refuses(&self, rpc: &str, status: Status) {
        self.0.lock().unwrap().answers.insert(rpc.into(), Err(status));
    }

    pub(super) fn asked(&self, rpc: &str) -> Vec<Bytes> {
        let state = self.0.lock().unwrap();
        state.asked.iter().filter(|(asked, _)| asked == rpc).map(|(_, message)| message.clone()).collect()
    }

    /// The spans named by calls as their parents.
    pub(super) fn parents(&self) -> Vec<String> {
        self.0.lock().unwrap().parents.clone()
    }

    pub(super) async fn answer(
        self,
        rpc: String,
        request: Request<Bytes>,
    ) -> Result<Response<Bytes>, Status> {
        let hangs = |state: &State| state.hangs || state.hanging.contains(&rpc);
        let hangs = hangs(&self.0.lock().unwrap());
        if hangs {
            std::future::pending::<()>().await;
        }
        let mut state = self.0.lock().unwrap();
        let parent = request.metadata().get("traceparent").and_then(|value| value.to_str().ok());
        state.parents.extend(parent.map(str::to_owned));
        state.asked.push((rpc.clone(), request.into_inner()));
        let unknown = || Err(Status::unimplemented(rpc.clone()));
        state.answers.get(&rpc).cloned().unwrap_or_else(unknown).map(Response::new)
    }
}

impl Service<http::Request<Body>> for Fake {
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = BoxFuture<'static, Result<http::Response<Body>, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        let rpc = request.uri().path().rsplit('/').next().unwrap_or_default().to_owned();
        let fake = self.clone();
        Box::pin(async move {
            let streams = rpc.starts_with("Stream") || rpc == "GetContainerEvents";
            let breaks_off = fake.0.lock().unwrap().breaks_off;
            let answered = service_fn(move |request| fake.clone().answer(rpc.clone(), request));
            if !streams {
                return Ok(Grpc::new(Raw).unary(answered, request).await);
            }
            // A stream has one message, and goes on without a further one where the message is empty.
            let streamed = service_fn(move |request| {
                let mut answered = answered.clone();
                async move {
                    let message = answered.call(request).await?.into_inner();
                    let rest = match (breaks_off, message.is_empty()) {
                        (true, _) => stream::iter([Err(Status::unavailable("broken off"))]).boxed(),
                        (false, true) => stream::pending().boxed(),
                        (false, false) => stream::empty().boxed(),
                    };
                    Ok::<_, Status>(Response::new(stream::iter([Ok::<_, Status>(message)]).chain(rest)))
                }
            });
            Ok(Grpc::new(Raw).server_streaming(streamed, request).await)
        })
    }
}

#[derive(Clone)]
pub(super) struct RuntimeFake(pub(super) Fake);
#[derive(Clone)]
pub(super) struct ImageFake(pub(super) Fake);

macro_rules! named {
    ($($name:ident = $service:literal,)*) => {$(
        impl NamedService for $name {
            const NAME: &'static str = $service;
        }

        impl Service<http::Request<Body>> for $name {
            type Response = http::Response<Body>;
            type Error = Infallible;
            type Future = BoxFuture<'static, Result<http::Response<Body>, Infallible>>;

            fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
                Poll::Ready(Ok(()))
            }

            fn call(&mut self, request: http::Request<Body>) -> Self::Future {
                self.0.call(request)
            }
        }
    )*};
}

named! {
    RuntimeFake = "runtime.v1.RuntimeService",
    ImageFake = "runtime.v1.ImageService",
}
