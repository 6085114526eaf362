//! A fake daemon: a server of CRI on a unix socket. It answers each call with the test's message for it. It
//! can be stopped and started again.

pub(crate) mod terminal;

use std::collections::HashMap;
use std::convert::Infallible;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::{Buf, BufMut, Bytes};
use futures::future::BoxFuture;
use futures::{StreamExt, stream};
use prost::Message;
use proto_cri::v1;
use tokio::net::UnixListener;
use tokio::sync::broadcast;
use tokio_stream::wrappers::UnixListenerStream;
use tonic::body::Body;
use tonic::codec::{Codec, DecodeBuf, Decoder, EncodeBuf, Encoder};
use tonic::codegen::{Service, http};
use tonic::server::{Grpc, NamedService};
use tonic::{Request, Response, Status, Streaming};
use tower::service_fn;

/// The interval between two looks whether a call still hangs.
const HANGING_INTERVAL: Duration = Duration::from_millis(5);

/// Most events in the queue for a listener.
const EVENTS_MAX: usize = 64;

/// A daemon with its socket and its configuration in a directory of its own.
pub(crate) struct FakeDaemon {
    answers: Answers,
    serving: Option<Serving>,
    dir: tempfile::TempDir,
}

struct Serving {
    stop: tokio::sync::oneshot::Sender<()>,
    thread: std::thread::JoinHandle<()>,
}

#[derive(Clone)]
struct Answers(Arc<Mutex<State>>);

struct State {
    by_call: HashMap<String, Result<Bytes, Status>>,
    /// Calls without an answer.
    hanging: Option<String>,
    asked: Vec<String>,
    /// The last request of each call of our own service and of the runtime's. Of an import all requests, one
    /// after the other.
    last: HashMap<String, Vec<u8>>,
    events: broadcast::Sender<Bytes>,
}

impl FakeDaemon {
    /// A serving daemon, named Podvisor, without pods.
    pub(crate) fn start() -> FakeDaemon {
        let mut daemon = FakeDaemon::down();
        daemon.serve();
        daemon
    }

    /// A daemon without a listener on its socket.
    pub(crate) fn down() -> FakeDaemon {
        let dir = tempfile::tempdir().unwrap();
        let events = broadcast::Sender::new(EVENTS_MAX);
        let (by_call, hanging, asked, last) = Default::default();
        let answers = Answers(Arc::new(Mutex::new(State { by_call, hanging, asked, last, events })));
        let daemon = FakeDaemon { answers, serving: None, dir };
        std::fs::write(daemon.config(), format!("[paths]\nsocket = {:?}\n", daemon.socket())).unwrap();
        daemon.is("podvisor");
        for call in
            ["ListPodSandbox", "ListContainers", "ListPodSandboxStats", "Status", "GetContainerEvents"]
        {
            daemon.answers(call, &());
        }
        daemon
    }

    /// Lets the daemon introduce itself by this name.
    pub(crate) fn is(&self, runtime_name: &str) {
        let version = v1::VersionResponse {
            version: "0.1.0".into(),
            runtime_name: runtime_name.into(),
            runtime_version: "1.2.3".into(),
            runtime_api_version: "v1".into(),
        };
        self.answers("Version", &version);
    }

    pub(crate) fn answers(&self, call: &str, message: &impl Message) {
        self.state(|state| state.by_call.insert(call.into(), Ok(message.encode_to_vec().into())));
    }

    pub(crate) fn refuses(&self, call: &str, status: Status) {
        self.state(|state| state.by_call.insert(call.into(), Err(status)));
    }

    /// From now on the call is not answered.
    pub(crate) fn hangs_at(&self, call: &str) {
        self.state(|state| state.hanging = Some(call.into()));
    }

    /// Answers what hangs.
    pub(crate) fn goes_on(&self) {
        self.state(|state| state.hanging = None);
    }

    /// How often the call was made.
    pub(crate) fn asked(&self, call: &str) -> usize {
        self.state(|state| state.asked.iter().filter(|asked| *asked == call).count())
    }

    /// The last request of this call, not of the images' service of CRI.
    pub(crate) fn last(&self, call: &str) -> Vec<u8> {
        self.state(|state| state.last.get(call).cloned().unwrap_or_default())
    }

    /// Sends an event to all listeners; whether there is one.
    pub(crate) fn sends(&self, event: &v1::ContainerEventResponse) -> bool {
        self.state(|state| state.events.send(event.encode_to_vec().into()).is_ok())
    }

    pub(crate) fn socket(&self) -> PathBuf {
        self.dir.path().join("podvisor.sock")
    }

    pub(crate) fn config(&self) -> PathBuf {
        self.dir.path().join("config.toml")
    }

    /// Serves, also after a stop.
    pub(crate) fn serve(&mut self) {
        let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
        let listener = std::os::unix::net::UnixListener::bind(self.socket()).unwrap();
        listener.set_nonblocking(true).unwrap();
        let answers = self.answers.clone();
        // On its own runtime. Its end closes all connections.
        let thread = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async {
                let listener = UnixListenerStream::new(UnixListener::from_std(listener).unwrap());
                let server = tonic::transport::Server::builder()
                    .add_service(ImageService(answers.clone()))
                    .add_service(TransferService(answers.clone()))
                    .add_service(RuntimeService(answers));
                tokio::select! {
                    served = server.serve_with_incoming(listener) => served.unwrap(),
                    _ = stopped => {}
                }
            });
        });
        self.serving = Some(Serving { stop, thread });
    }

    /// Ends as a crash does.
    pub(crate) fn kill(&mut self) {
        let Serving { stop, thread } = self.serving.take().unwrap();
        drop(stop);
        thread.join().unwrap();
        remove(&self.socket());
    }

    fn state<T>(&self, act: impl FnOnce(&mut State) -> T) -> T {
        act(&mut self.answers.0.lock().unwrap())
    }
}

impl Drop for FakeDaemon {
    fn drop(&mut self) {
        if self.serving.is_some() {
            self.kill();
        }
    }
}

fn remove(socket: &Path) {
    std::fs::remove_file(socket).unwrap();
}

impl Answers {
    async fn answer(self, call: String) -> Result<Response<Bytes>, Status> {
        self.0.lock().unwrap().asked.push(call.clone());
        let hangs = || self.0.lock().unwrap().hanging.as_ref() == Some(&call);
        while hangs() {
            tokio::time::sleep(HANGING_INTERVAL).await;
        }
        let answer = self.0.lock().unwrap().by_call.get(&call).cloned();
        answer
            .unwrap_or_else(|| Err(Status::unimplemented(format!("unknown method {call}"))))
            .map(Response::new)
    }

    fn events(&self) -> broadcast::Receiver<Bytes> {
        self.0.lock().unwrap().events.subscribe()
    }
}

/// Services on the socket, each with the function to answer its calls.
macro_rules! services {
    ($($service:ident = $name:literal by $answered:ident,)*) => {$(
        #[derive(Clone)]
        struct $service(Answers);

        impl NamedService for $service {
            const NAME: &'static str = $name;
        }

        impl Service<http::Request<Body>> for $service {
            type Response = http::Response<Body>;
            type Error = Infallible;
            type Future = BoxFuture<'static, Result<http::Response<Body>, Infallible>>;

            fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
                Poll::Ready(Ok(()))
            }

            fn call(&mut self, request: http::Request<Body>) -> Self::Future {
                let call = request.uri().path().rsplit('/').next().unwrap_or_default().to_owned();
                let answers = self.0.clone();
                Box::pin(async move { Ok($answered(answers, call, request).await) })
            }
        }
    )*};
}

services! {
    ImageService = "runtime.v1.ImageService" by image_call,
    TransferService = "podvisor.v1.Images" by transfer_call,
    RuntimeService = "runtime.v1.RuntimeService" by runtime_call,
}

/// Answers each call of the images' service with one message.
async fn image_call(answers: Answers, call: String, request: http::Request<Body>) -> http::Response<Body> {
    let answered = service_fn(move |_: Request<Bytes>| answers.clone().answer(call.clone()));
    Grpc::new(Raw).unary(answered, request).await
}

/// Answers a pull or an import with one message, once all requests have come.
async fn transfer_call(answers: Answers, call: String, request: http::Request<Body>) -> http::Response<Body> {
    let answered = service_fn(move |request: Request<Streaming<Bytes>>| {
        let (answers, call) = (answers.clone(), call.clone());
        async move {
            let (mut requests, mut all) = (request.into_inner(), Vec::new());
            while let Some(request) = requests.message().await? {
                all.extend(request);
            }
            answers.0.lock().unwrap().last.insert(call.clone(), all);
            let answer = answers.answer(call).await?.into_inner();
            Ok::<_, Status>(Response::new(stream::iter([Ok::<_, Status>(answer)]).boxed()))
        }
    });
    Grpc::new(Raw).streaming(answered, request).await
}

async fn runtime_call(answers: Answers, call: String, request: http::Request<Body>) -> http::Response<Body> {
    if call != "GetContainerEvents" {
        let answered = service_fn(move |request: Request<Bytes>| {
            answers.0.lock().unwrap().last.insert(call.clone(), request.into_inner().into());
            answers.clone().answer(call.clone())
        });
        return Grpc::new(Raw).unary(answered, request).await;
    }
    let streamed = service_fn(move |_: Request<Bytes>| {
        let (answers, call) = (answers.clone(), call.clone());
        async move {
            let events = answers.events();
            // An answer of its own refuses the stream; without one the events are.
            answers.answer(call).await?;
            let events = stream::unfold(events, |mut events| async {
                let event = events.recv().await.ok()?;
                Some((Ok::<_, Status>(event), events))
            });
            Ok::<_, Status>(Response::new(events.boxed()))
        }
    });
    Grpc::new(Raw).server_streaming(streamed, request).await
}

/// Messages as bytes.
#[derive(Clone, Copy, Default)]
struct Raw;

impl Codec for Raw {
    type Encode = Bytes;
    type Decode = Bytes;
    type Encoder = Raw;
    type Decoder = Raw;

    fn encoder(&mut self) -> Raw {
        Raw
    }

    fn decoder(&mut self) -> Raw {
        Raw
    }
}

impl Encoder for Raw {
    type Item = Bytes;
    type Error = Status;

    fn encode(&mut self, message: Bytes, to: &mut EncodeBuf<'_>) -> Result<(), Status> {
        to.put(message);
        Ok(())
    }
}

impl Decoder for Raw {
    type Item = Bytes;
    type Error = Status;

    fn decode(&mut self, from: &mut DecodeBuf<'_>) -> Result<Option<Bytes>, Status> {
        Ok(Some(from.copy_to_bytes(from.remaining())))
    }
}
