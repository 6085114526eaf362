//! Calls through the layer, to services of ours and to an upstream on a socket, both fakes that answer with what a test
//! gave them and keep what they were asked.

use std::collections::HashMap;
use std::convert::Infallible;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use futures::future::BoxFuture;
use futures::{StreamExt, stream};
use prost::Message;
use proto_cri::v1;
use tokio::net::UnixListener;
use tokio_stream::wrappers::UnixListenerStream;
use tonic::body::Body;
use tonic::codegen::http;
use tonic::server::{Grpc, NamedService};
use tonic::{Code, Request, Response, Status};
use tower::{Service, service_fn};

use super::layer::WithUpstream;
use super::link::{streaming, unary};
use super::local::Local;
use super::raw::Raw;
use super::route::Listed;
use super::{UnnamedPods, Upstream, UpstreamConfig};

const RUNTIME: &str = "/runtime.v1.RuntimeService/";
const IMAGE: &str = "/runtime.v1.ImageService/";

/// A runtime that answers each RPC with one message, or with an error; what was not given is unknown to it.
#[derive(Clone, Default)]
struct Fake(Arc<Mutex<State>>);

#[derive(Default)]
struct State {
    answers: HashMap<String, Result<Bytes, Status>>,
    asked: Vec<(String, Bytes)>,
    hangs: bool,
}

impl Fake {
    fn answers(&self, rpc: &str, message: &impl Message) {
        self.0.lock().unwrap().answers.insert(rpc.into(), Ok(message.encode_to_vec().into()));
    }

    fn refuses(&self, rpc: &str, status: Status) {
        self.0.lock().unwrap().answers.insert(rpc.into(), Err(status));
    }

    fn asked(&self, rpc: &str) -> Vec<Bytes> {
        let state = self.0.lock().unwrap();
        state.asked.iter().filter(|(asked, _)| asked == rpc).map(|(_, message)| message.clone()).collect()
    }

    async fn answer(self, rpc: String, request: Request<Bytes>) -> Result<Response<Bytes>, Status> {
        let hangs = self.0.lock().unwrap().hangs;
        if hangs {
            std::future::pending::<()>().await;
        }
        let mut state = self.0.lock().unwrap();
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
            let answered = service_fn(move |request| fake.clone().answer(rpc.clone(), request));
            if !streams {
                return Ok(Grpc::new(Raw).unary(answered, request).await);
            }
            // A stream has one message, and goes on without a further one where the message is empty.
            let streamed = service_fn(move |request| {
                let mut answered = answered.clone();
                async move {
                    let message = answered.call(request).await?.into_inner();
                    let rest =
                        if message.is_empty() { stream::pending().boxed() } else { stream::empty().boxed() };
                    Ok::<_, Status>(Response::new(stream::iter([Ok::<_, Status>(message)]).chain(rest)))
                }
            });
            Ok(Grpc::new(Raw).server_streaming(streamed, request).await)
        })
    }
}

#[derive(Clone)]
struct RuntimeFake(Fake);
#[derive(Clone)]
struct ImageFake(Fake);

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

/// A daemon that has the pods and containers whose ids begin with `vm`, and the image `ours`.
#[derive(Debug)]
struct Vms;

impl Local for Vms {
    fn id(&self, _: Listed, id: &str) -> Option<String> {
        (id.starts_with("vm") || id == "v").then(|| "vm1".to_owned())
    }

    fn has_pod(&self, pod: &v1::PodSandboxMetadata) -> bool {
        pod.name == "vm"
    }

    fn image(&self, name: &str) -> Option<v1::Image> {
        (name == "ours").then(|| image("ours"))
    }
}

fn image(id: &str) -> v1::Image {
    v1::Image { id: id.into(), repo_digests: vec![format!("r/{id}@sha256:1")], ..Default::default() }
}

/// Both fakes and the layer between them and a client.
struct World {
    ours: Fake,
    theirs: Fake,
    layer: WithUpstream<Fake>,
    serving: Option<(tokio::sync::oneshot::Sender<()>, std::thread::JoinHandle<()>)>,
    dir: tempfile::TempDir,
}

impl World {
    /// An upstream that has answered its first look.
    async fn start() -> World {
        let mut world = World::without_upstream();
        world.serve();
        world.is_up(true).await;
        world
    }

    /// An upstream that nobody serves.
    fn without_upstream() -> World {
        let dir = tempfile::tempdir().unwrap();
        let (ours, theirs) = (Fake::default(), Fake::default());
        for rpc in ["ListPodSandbox", "ListContainers", "ListImages", "Version", "ImageFsInfo"] {
            ours.answers(rpc, &());
            theirs.answers(rpc, &());
        }
        theirs.answers("ImageStatus", &v1::ImageStatusResponse::default());
        let layer = WithUpstream { ours: ours.clone(), upstream: Some(upstream(dir.path())) };
        World { ours, theirs, layer, serving: None, dir }
    }

    fn upstream(&self) -> Arc<Upstream> {
        Arc::clone(self.layer.upstream.as_ref().unwrap())
    }

    fn serve(&mut self) {
        let socket = self.dir.path().join("upstream.sock");
        let _ = std::fs::remove_file(&socket);
        let server = tonic::transport::Server::builder()
            .add_service(RuntimeFake(self.theirs.clone()))
            .add_service(ImageFake(self.theirs.clone()));
        let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
        // With a runtime of its own, whose end closes all connections.
        let thread = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async {
                let listener = UnixListenerStream::new(UnixListener::bind(socket).unwrap());
                tokio::select! {
                    served = server.serve_with_incoming(listener) => served.unwrap(),
                    _ = stopped => {}
                }
            });
        });
        self.serving = Some((stop, thread));
    }

    /// Ends the upstream as a crash does.
    fn kill(&mut self) {
        let (stop, thread) = self.serving.take().unwrap();
        drop(stop);
        thread.join().unwrap();
        std::fs::remove_file(self.dir.path().join("upstream.sock")).unwrap();
    }

    async fn is_up(&self, up: bool) {
        let waited = self.upstream().link.state().wait_for(|state| state.is_ok() == up).await.is_ok();
        assert!(waited);
    }

    async fn call<A: Message + Default>(&self, path: &str, message: &impl Message) -> Result<A, Status> {
        let request = Request::new(message.encode_to_vec().into());
        let answer = unary(self.layer.clone(), path, request).await?;
        Ok(A::decode(answer.into_inner()).unwrap())
    }

    async fn runtime<A: Message + Default>(&self, rpc: &str, message: &impl Message) -> Result<A, Status> {
        self.call(&format!("{RUNTIME}{rpc}"), message).await
    }

    async fn pods(&self) -> Vec<String> {
        let list: v1::ListPodSandboxResponse = self.runtime("ListPodSandbox", &()).await.unwrap();
        list.items.into_iter().map(|pod| pod.id).collect()
    }
}

fn upstream(dir: &Path) -> Arc<Upstream> {
    let config = UpstreamConfig {
        socket: dir.join("upstream.sock"),
        handlers: ["runc", "other"].map(str::to_owned).into(),
        unnamed_pods: UnnamedPods::OfTheNode,
        state_dir: dir.to_owned(),
    };
    let upstream = Arc::new(Upstream::beside(Box::new(Vms), config));
    tokio::spawn(Arc::clone(&upstream).watch());
    upstream
}

fn pods(ids: &[&str]) -> v1::ListPodSandboxResponse {
    let pod = |id: &&str| v1::PodSandbox {
        id: (*id).to_owned(),
        metadata: Some(v1::PodSandboxMetadata { name: (*id).to_owned(), ..Default::default() }),
        ..Default::default()
    };
    v1::ListPodSandboxResponse { items: ids.iter().map(pod).collect(), ..Default::default() }
}

fn run(handler: &str, node_network: bool) -> v1::RunPodSandboxRequest {
    let mut run = v1::RunPodSandboxRequest { runtime_handler: handler.into(), ..Default::default() };
    let config = run.config.get_or_insert_default();
    config.hostname = "web".into();
    if node_network {
        let context = config.linux.get_or_insert_default().security_context.get_or_insert_default();
        context.namespace_options.get_or_insert_default().network = v1::NamespaceMode::Node.into();
    }
    run
}

#[tokio::test]
async fn a_pod_goes_where_its_handler_leads() {
    let world = World::start().await;
    world.ours.answers("RunPodSandbox", &v1::RunPodSandboxResponse { pod_sandbox_id: "vm1".into() });
    world.theirs.answers("RunPodSandbox", &v1::RunPodSandboxResponse { pod_sandbox_id: "c1".into() });
    for (handler, node_network, expected) in [
        ("", false, "vm1"),
        ("vm", false, "vm1"),
        ("runc", false, "c1"),
        ("other", true, "c1"),
        ("", true, "c1"),
    ] {
        let answer: v1::RunPodSandboxResponse =
            world.runtime("RunPodSandbox", &run(handler, node_network)).await.unwrap();
        assert_eq!(answer.pod_sandbox_id, expected, "{handler:?}");
    }
    let asked = world.theirs.asked("RunPodSandbox");
    assert_eq!(asked[1], run("other", true).encode_to_vec(), "as it came in");
    let refused = world.runtime::<v1::RunPodSandboxResponse>("RunPodSandbox", &run("vm", true)).await;
    let refused = refused.unwrap_err();
    assert_eq!(refused.code(), Code::InvalidArgument);
    assert!(refused.message().contains("\"runc\" or \"other\""), "{refused}");
}

#[tokio::test]
async fn a_call_about_a_pod_goes_to_its_owner_as_the_bytes_it_came_in() {
    let world = World::start().await;
    world.ours.answers("StopPodSandbox", &());
    world.theirs.answers("StopPodSandbox", &());
    let stop = |id: &str| v1::StopPodSandboxRequest { pod_sandbox_id: id.into() };
    for id in ["vm1", "v", "c1", "nobody's"] {
        world.runtime::<()>("StopPodSandbox", &stop(id)).await.unwrap();
    }
    assert_eq!(
        (world.ours.asked("StopPodSandbox").len(), world.theirs.asked("StopPodSandbox").len()),
        (2, 2)
    );
    // A field of a later version.
    let mut later = stop("c1").encode_to_vec();
    later.extend_from_slice(&[0xf8, 0x06, 7]);
    let request = Request::new(Bytes::from(later.clone()));
    unary(world.layer.clone(), "/runtime.v1alpha2.RuntimeService/StopPodSandbox", request).await.unwrap();
    assert_eq!(world.theirs.asked("StopPodSandbox").last().unwrap()[..], later[..]);
    world.theirs.refuses("StopPodSandbox", Status::failed_precondition("busy"));
    let refused = world.runtime::<()>("StopPodSandbox", &stop("c1")).await.unwrap_err();
    assert_eq!((refused.code(), refused.message()), (Code::FailedPrecondition, "busy"));
    assert!(world.upstream().link.is_up(), "an error is an answer");
}

#[tokio::test]
async fn lists_have_both_sides_and_what_an_upstream_had_last_while_it_is_gone() {
    let mut world = World::start().await;
    world.ours.answers("ListPodSandbox", &pods(&["vm1"]));
    world.theirs.answers("ListPodSandbox", &pods(&["c1", "c2"]));
    assert_eq!(world.pods().await, ["vm1", "c1", "c2"]);
    world.kill();
    assert_eq!(world.pods().await, ["vm1", "c1", "c2"]);
    world.is_up(false).await;
    let id = |id: &str| v1::PodSandboxStatusRequest { pod_sandbox_id: id.into(), verbose: false };
    world.ours.refuses("PodSandboxStatus", Status::not_found("ours"));
    let status =
        world.runtime::<v1::PodSandboxStatusResponse>("PodSandboxStatus", &id("c1")).await.unwrap_err();
    assert_eq!(status.code(), Code::Unavailable, "{status}");
    let unknown =
        world.runtime::<v1::PodSandboxStatusResponse>("PodSandboxStatus", &id("x")).await.unwrap_err();
    assert_eq!(unknown.code(), Code::NotFound, "a pod that the upstream never had is nobody's");
    // A filter holds for what is remembered, too.
    let filter = v1::PodSandboxFilter { id: "c2".into(), ..Default::default() };
    let list: v1::ListPodSandboxResponse =
        world.runtime("ListPodSandbox", &v1::ListPodSandboxRequest { filter: Some(filter) }).await.unwrap();
    assert_eq!(list.items.len(), 2, "ours does not filter, and c2 passes");
    world.theirs.answers("ListPodSandbox", &pods(&["c2"]));
    world.serve();
    world.is_up(true).await;
    assert_eq!(world.pods().await, ["vm1", "c2"]);
}

#[tokio::test]
async fn pods_are_remembered_over_a_restart_of_the_daemon() {
    let mut world = World::start().await;
    world.theirs.answers("ListPodSandbox", &pods(&["c1"]));
    assert_eq!(world.pods().await, ["c1"]);
    let written = world.dir.path().join("upstream/pods");
    while std::fs::read(&written).unwrap_or_default().is_empty() {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    world.kill();
    world.layer.upstream = Some(upstream(world.dir.path()));
    assert_eq!(world.pods().await, ["c1"]);
}

#[tokio::test]
async fn an_upstream_that_hangs_or_answers_nonsense_is_down_and_ours_go_on() {
    let world = World::start().await;
    world.ours.answers("ListPodSandbox", &pods(&["vm1"]));
    world.theirs.answers("ListPodSandbox", &pods(&["c1"]));
    world.pods().await;
    let nonsense = Bytes::from_static(&[0x0a, 2, 0xff, 0xff]);
    world.theirs.0.lock().unwrap().answers.insert("ListPodSandbox".into(), Ok(nonsense));
    assert_eq!(world.pods().await, ["vm1", "c1"]);
    world.is_up(false).await;
    world.theirs.answers("ListPodSandbox", &pods(&["c1"]));
    world.is_up(true).await;
    world.theirs.0.lock().unwrap().hangs = true;
    tokio::time::pause();
    assert_eq!(world.pods().await, ["vm1", "c1"]);
    world.is_up(false).await;
}

#[tokio::test]
async fn a_beginning_of_several_ids_is_refused() {
    let world = World::start().await;
    world.theirs.answers("ListPodSandbox", &pods(&["vx"]));
    world.pods().await;
    let id = v1::StopPodSandboxRequest { pod_sandbox_id: "v".into() };
    let refused = world.runtime::<()>("StopPodSandbox", &id).await.unwrap_err();
    assert!(refused.message().contains("vm1") && refused.message().contains("vx"), "{refused}");
}

#[tokio::test]
async fn streams_of_lists_have_both_sides_even_where_the_upstream_has_no_streams() {
    let world = World::start().await;
    let piece = |id: &str| v1::StreamPodSandboxesResponse { pod_sandboxes: pods(&[id]).items };
    world.ours.answers("StreamPodSandboxes", &piece("vm1"));
    world.theirs.answers("ListPodSandbox", &pods(&["c1"]));
    let listed = async || {
        let path = format!("{RUNTIME}StreamPodSandboxes");
        let pieces = streaming(world.layer.clone(), &path, Request::new(Bytes::new())).await.unwrap();
        let pieces: Vec<_> = pieces
            .map(|piece| v1::StreamPodSandboxesResponse::decode(piece.unwrap()).unwrap())
            .collect()
            .await;
        pieces.into_iter().flat_map(|piece| piece.pod_sandboxes).map(|pod| pod.id).collect::<Vec<_>>()
    };
    assert_eq!(listed().await, ["vm1", "c1"]);
    world.theirs.answers("StreamPodSandboxes", &piece("c2"));
    assert_eq!(listed().await, ["vm1", "c2"]);
}

#[tokio::test]
async fn a_client_of_events_is_sent_back_to_the_lists_when_the_upstream_goes() {
    let mut world = World::start().await;
    let path = format!("{RUNTIME}GetContainerEvents");
    let open = async |world: &World| streaming(world.layer.clone(), &path, Request::new(Bytes::new())).await;
    world.ours.answers("GetContainerEvents", &());
    assert_eq!(open(&world).await.unwrap_err().code(), Code::Unimplemented, "the client polls both then");
    world.theirs.answers("GetContainerEvents", &());
    let mut events = open(&world).await.unwrap();
    for _ in 0..2 {
        events.next().await.unwrap().unwrap();
    }
    world.kill();
    assert_eq!(events.next().await.unwrap().unwrap_err().code(), Code::Unavailable);
    assert!(events.next().await.is_none());
}

#[tokio::test]
async fn an_image_is_pulled_into_the_store_of_its_pod() {
    let world = World::start().await;
    for fake in [&world.ours, &world.theirs] {
        fake.answers("PullImage", &v1::PullImageResponse { image_ref: "1".into() });
    }
    world.theirs.answers("ListPodSandbox", &pods(&["c1"]));
    for (pod, of_ours, of_theirs) in [("vm", 1, 0), ("c1", 1, 1), ("nobody's", 2, 1)] {
        let metadata = v1::PodSandboxMetadata { name: pod.into(), ..Default::default() };
        let config = v1::PodSandboxConfig { metadata: Some(metadata), ..Default::default() };
        let pull = v1::PullImageRequest { sandbox_config: Some(config), ..Default::default() };
        world.call::<v1::PullImageResponse>(&format!("{IMAGE}PullImage"), &pull).await.unwrap();
        let asked = (world.ours.asked("PullImage").len(), world.theirs.asked("PullImage").len());
        assert_eq!(asked, (of_ours, of_theirs), "{pod}");
    }
}

#[tokio::test]
async fn an_image_of_the_other_store_is_fetched_without_credentials_and_absent_where_those_are_needed() {
    let world = World::start().await;
    world.theirs.answers("CreateContainer", &v1::CreateContainerResponse { container_id: "c".into() });
    world.ours.answers(
        "ImageStatus",
        &v1::ImageStatusResponse { image: Some(image("ours")), ..Default::default() },
    );
    let spec = |name: &str| Some(v1::ImageSpec { image: name.into(), ..Default::default() });
    let config = v1::ContainerConfig { image: spec("ours"), ..Default::default() };
    let create = v1::CreateContainerRequest {
        pod_sandbox_id: "c1".into(),
        config: Some(config),
        ..Default::default()
    };
    let created = async || world.runtime::<v1::CreateContainerResponse>("CreateContainer", &create).await;
    let present = async || {
        let status = v1::ImageStatusRequest { image: spec("ours"), verbose: false };
        let status: v1::ImageStatusResponse =
            world.call(&format!("{IMAGE}ImageStatus"), &status).await.unwrap();
        status.image.is_some()
    };
    assert!(present().await);
    world.theirs.refuses("PullImage", Status::unknown("401"));
    let refused = created().await.unwrap_err();
    assert!(refused.code() == Code::NotFound && refused.message().contains("401"), "{refused}");
    let pull = v1::PullImageRequest::decode(world.theirs.asked("PullImage")[0].clone()).unwrap();
    assert_eq!((pull.image.unwrap().image.as_str(), pull.auth), ("r/ours@sha256:1", None));
    assert!(!present().await, "the kubelet pulls with the pod's own credentials");
    assert!(world.theirs.asked("CreateContainer").is_empty());
    // As the kubelet does then: for the pod, which the upstream has.
    world.theirs.answers("ListPodSandbox", &pods(&["c1"]));
    world.theirs.answers("PullImage", &v1::PullImageResponse { image_ref: "ours".into() });
    let metadata = v1::PodSandboxMetadata { name: "c1".into(), ..Default::default() };
    let sandbox_config = Some(v1::PodSandboxConfig { metadata: Some(metadata), ..Default::default() });
    let pull = v1::PullImageRequest { image: spec("ours"), sandbox_config, ..Default::default() };
    world.call::<v1::PullImageResponse>(&format!("{IMAGE}PullImage"), &pull).await.unwrap();
    assert!(present().await);
    assert_eq!(created().await.unwrap().container_id, "c");
}

#[tokio::test]
async fn an_image_is_removed_from_both_stores_or_the_call_fails() {
    let mut world = World::start().await;
    for fake in [&world.ours, &world.theirs] {
        fake.answers("RemoveImage", &());
    }
    world.theirs.answers("ListImages", &v1::ListImagesResponse { images: vec![image("theirs")] });
    let list: v1::ListImagesResponse = world.call(&format!("{IMAGE}ListImages"), &()).await.unwrap();
    assert_eq!(list.images.len(), 1);
    let remove = async |world: &World, name: &str| {
        let image = Some(v1::ImageSpec { image: name.into(), ..Default::default() });
        world.call::<()>(&format!("{IMAGE}RemoveImage"), &v1::RemoveImageRequest { image }).await
    };
    remove(&world, "ours").await.unwrap();
    assert_eq!((world.ours.asked("RemoveImage").len(), world.theirs.asked("RemoveImage").len()), (1, 1));
    world.kill();
    world.pods().await;
    world.is_up(false).await;
    remove(&world, "ours").await.unwrap();
    assert_eq!(remove(&world, "theirs").await.unwrap_err().code(), Code::Unavailable);
}

#[tokio::test]
async fn a_configuration_reaches_an_upstream_that_was_down() {
    let mut world = World::without_upstream();
    world.ours.answers("UpdateRuntimeConfig", &());
    world.theirs.answers("UpdateRuntimeConfig", &());
    let config =
        v1::RuntimeConfig { network_config: Some(v1::NetworkConfig { pod_cidr: "10.1.0.0/24".into() }) };
    let update = v1::UpdateRuntimeConfigRequest { runtime_config: Some(config) };
    world.runtime::<()>("UpdateRuntimeConfig", &update).await.unwrap();
    assert!(world.theirs.asked("UpdateRuntimeConfig").is_empty());
    world.serve();
    world.is_up(true).await;
    assert_eq!(world.theirs.asked("UpdateRuntimeConfig"), [Bytes::from(update.encode_to_vec())]);
}

#[tokio::test]
async fn a_status_has_both_sides_handlers_and_says_that_the_upstream_is_gone() {
    let mut world = World::start().await;
    let handler = |name: &str| v1::RuntimeHandler { name: name.into(), features: Some(Default::default()) };
    world.ours.answers(
        "Status",
        &v1::StatusResponse { runtime_handlers: vec![handler("vm")], ..Default::default() },
    );
    world.theirs.answers("Status", &v1::StatusResponse::default());
    let status = async |world: &World| world.runtime::<v1::StatusResponse>("Status", &()).await.unwrap();
    let answer = status(&world).await;
    assert_eq!(answer.runtime_handlers, ["vm", "runc", "other"].map(handler));
    assert!(answer.status.unwrap().conditions[0].status);
    world.kill();
    let answer = status(&world).await;
    assert!(!answer.status.unwrap().conditions[0].status);
    assert_eq!(answer.runtime_handlers.len(), 3);
}
