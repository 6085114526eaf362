//! A daemon and an upstream, both fakes, and the layer between them and a client.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use prost::Message;
use proto_cri::v1;
use tokio::net::UnixListener;
use tokio_stream::wrappers::UnixListenerStream;
use tonic::{Request, Status};

use super::super::layer::WithUpstream;
use super::super::link::unary;
use super::super::local::Local;
use super::super::route::Listed;
use super::super::{UnnamedPods, Upstream, UpstreamConfig};
use super::fake::{Fake, ImageFake, RuntimeFake};

pub(super) const RUNTIME: &str = "/runtime.v1.RuntimeService/";
pub(super) const IMAGE: &str = "/runtime.v1.ImageService/";

/// A daemon with the pods and containers whose ids begin with `vm`, and the image `ours`.
#[derive(Debug)]
pub(super) struct Vms;

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

pub(super) fn image(id: &str) -> v1::Image {
    v1::Image { id: id.into(), repo_digests: vec![format!("r/{id}@sha256:1")], ..Default::default() }
}

/// Both fakes and the layer between them and a client.
pub(super) struct World {
    pub(super) ours: Fake,
    pub(super) theirs: Fake,
    pub(super) layer: WithUpstream<Fake>,
    serving: Option<(tokio::sync::oneshot::Sender<()>, std::thread::JoinHandle<()>)>,
    pub(super) dir: tempfile::TempDir,
}

impl World {
    /// An upstream that has answered its first check.
    pub(super) async fn start() -> World {
        let mut world = World::without_upstream();
        world.serve();
        world.is_up(true).await;
        world
    }

    /// An upstream socket without a server.
    pub(super) fn without_upstream() -> World {
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

    pub(super) fn upstream(&self) -> Arc<Upstream> {
        Arc::clone(self.layer.upstream.as_ref().unwrap())
    }

    pub(super) fn serve(&mut self) {
        let socket = self.dir.path().join("upstream.sock");
        let _ = std::fs::remove_file(&socket);
        let server = tonic::transport::Server::builder()
            .add_service(RuntimeFake(self.theirs.clone()))
            .add_service(ImageFake(self.theirs.clone()));
        let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
        // With a separate runtime. Its end closes all connections.
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
    pub(super) fn kill(&mut self) {
        let (stop, thread) = self.serving.take().unwrap();
        drop(stop);
        thread.join().unwrap();
        std::fs::remove_file(self.dir.path().join("upstream.sock")).unwrap();
    }

    pub(super) async fn is_up(&self, up: bool) {
        let mut state = self.upstream().link.state();
        let waiting =
            tokio::time::timeout(Duration::from_secs(60), state.wait_for(|state| state.is_ok() == up));
        assert!(waiting.await.expect("it comes to that").is_ok());
    }

    pub(super) async fn call<A: Message + Default>(
        &self,
        path: &str,
        message: &impl Message,
    ) -> Result<A, Status> {
        let request = Request::new(message.encode_to_vec().into());
        let answer = unary(self.layer.clone(), path, request).await?;
        Ok(A::decode(answer.into_inner()).unwrap())
    }

    pub(super) async fn runtime<A: Message + Default>(
        &self,
        rpc: &str,
        message: &impl Message,
    ) -> Result<A, Status> {
        self.call(&format!("{RUNTIME}{rpc}"), message).await
    }

    pub(super) async fn pods(&self) -> Vec<String> {
        let list: v1::ListPodSandboxResponse = self.runtime("ListPodSandbox", &()).await.unwrap();
        list.items.into_iter().map(|pod| pod.id).collect()
    }
}

pub(super) fn upstream(dir: &Path) -> Arc<Upstream> {
    upstream_of(dir, UnnamedPods::OfTheNode)
}

/// The upstream with these of the pods without a handler's name.
pub(super) fn upstream_of(dir: &Path, unnamed_pods: UnnamedPods) -> Arc<Upstream> {
    let config = UpstreamConfig {
        socket: dir.join("upstream.sock"),
        handlers: ["runc", "other"].map(str::to_owned).into(),
        unnamed_pods,
        state_dir: dir.to_owned(),
        cgroup_driver: None,
    };
    let upstream = Arc::new(Upstream::beside(Box::new(Vms), config));
    tokio::spawn(Arc::clone(&upstream).watch());
    upstream
}

pub(super) fn pods(ids: &[&str]) -> v1::ListPodSandboxResponse {
    let pod = |id: &&str| v1::PodSandbox {
        id: (*id).to_owned(),
        metadata: Some(v1::PodSandboxMetadata { name: (*id).to_owned(), ..Default::default() }),
        ..Default::default()
    };
    v1::ListPodSandboxResponse { items: ids.iter().map(pod).collect(), ..Default::default() }
}

pub(super) fn run(handler: &str, node_network: bool) -> v1::RunPodSandboxRequest {
    let mut run = v1::RunPodSandboxRequest { runtime_handler: handler.into(), ..Default::default() };
    let config = run.config.get_or_insert_default();
    config.hostname = "web".into();
    if node_network {
        let context = config.linux.get_or_insert_default().security_context.get_or_insert_default();
        context.namespace_options.get_or_insert_default().network = v1::NamespaceMode::Node.into();
    }
    run
}
