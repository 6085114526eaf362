//! A plugin for tests: it records its events, and answers as the test requires.

use std::collections::HashMap;
use std::path::Path;
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use proto_nri::nri::*;
use proto_nri::nri_ttrpc::{Plugin, RuntimeClient, create_plugin};
use runtime_nri::{Connections, Trunk, connect};
use tokio::net::UnixStream;
use tokio::sync::watch;
use ttrpc::asynchronous::transport::{Listener, Socket};
use ttrpc::asynchronous::{Client, Server, TtrpcContext};
use ttrpc::context;
use ttrpc::proto::Code;

/// How a plugin answers.
#[derive(Clone, Debug)]
pub(crate) struct Answers {
    pub(crate) events: i32,
    /// The answer to CreateContainer, or the status of a refusal.
    pub(crate) create: Result<CreateContainerResponse, (Code, String)>,
    pub(crate) stop: StopContainerResponse,
    pub(crate) validate: ValidateContainerAdjustmentResponse,
    /// Whether it never answers to an event.
    pub(crate) hangs: bool,
    /// True if it lacks the RPCs for events without answers.
    pub(crate) is_old: bool,
}

impl Default for Answers {
    fn default() -> Self {
        Answers {
            events: 0,
            create: Ok(CreateContainerResponse::new()),
            stop: StopContainerResponse::new(),
            validate: ValidateContainerAdjustmentResponse::new(),
            hangs: false,
            is_old: false,
        }
    }
}

/// The events received by a plugin.
#[derive(Clone, Debug, Default)]
struct Heard {
    configuration: Option<ConfigureRequest>,
    known: Option<(Vec<String>, Vec<String>)>,
    events: Vec<String>,
    env: Vec<String>,
    annotations: HashMap<String, String>,
    validated: Option<ValidateContainerAdjustmentRequest>,
}

struct Service {
    answers: Answers,
    heard: Arc<watch::Sender<Heard>>,
}

pub(crate) struct TestPlugin {
    heard: Arc<watch::Sender<Heard>>,
    runtime: RuntimeClient,
    trunk: Trunk,
    _server: Server,
}

impl TestPlugin {
    /// Connects and registers. The plugin learns the outcome like any other.
    pub(crate) async fn connect(socket: &Path, name: &str, answers: Answers) -> TestPlugin {
        let plugin = TestPlugin::serve(socket, answers).await;
        let (index, name) = name.split_once('-').unwrap();
        let request = RegisterPluginRequest {
            plugin_name: name.into(),
            plugin_idx: index.into(),
            ..Default::default()
        };
        // A runtime closing the connection at once may be faster than its answer.
        let _ = plugin.runtime.register_plugin(context::Context::default(), &request).await;
        plugin
    }

    /// Serves at the other end of the stream given at its start.
    pub(crate) async fn started(stream: UnixStream, answers: Answers) -> TestPlugin {
        let plugin = TestPlugin::over(stream, answers).await;
        let _ =
            plugin.runtime.register_plugin(context::Context::default(), &RegisterPluginRequest::new()).await;
        plugin
    }

    /// Connects, and says nothing.
    pub(crate) async fn silent(socket: &Path) -> TestPlugin {
        TestPlugin::serve(socket, Answers::default()).await
    }

    async fn serve(socket: &Path, answers: Answers) -> TestPlugin {
        TestPlugin::over(UnixStream::connect(socket).await.unwrap(), answers).await
    }

    async fn over(stream: UnixStream, answers: Answers) -> TestPlugin {
        let Connections { plugin, runtime, trunk } = connect(stream);
        let heard = Arc::new(watch::Sender::new(Heard::default()));
        let service = Arc::new(Service { answers, heard: heard.clone() });
        let one = Mutex::new(Some(plugin));
        let connections = futures::stream::poll_fn(move |_| match one.lock().unwrap().take() {
            Some(connection) => std::task::Poll::Ready(Some(Ok(connection))),
            None => std::task::Poll::Pending,
        });
        let mut server =
            Server::new().register_service(create_plugin(service)).add_listener(Listener::new(connections));
        server.start().await.unwrap();
        let runtime = RuntimeClient::new(Client::new(Socket::new(runtime)));
        TestPlugin { heard, runtime, trunk, _server: server }
    }

    async fn wait(&self, is_so: impl FnMut(&Heard) -> bool) {
        self.heard.subscribe().wait_for(is_so).await.unwrap();
    }

    pub(crate) async fn configured(&self) {
        self.wait(|heard| heard.configuration.is_some()).await;
    }

    pub(crate) async fn synchronized(&self) {
        self.wait(|heard| heard.known.is_some()).await;
    }

    pub(crate) async fn asked(&self) {
        self.wait(|heard| !heard.events.is_empty()).await;
    }

    pub(crate) async fn closed(&self) {
        self.trunk.closed().await;
    }

    pub(crate) fn configuration(&self) -> ConfigureRequest {
        self.heard.borrow().configuration.clone().unwrap()
    }

    pub(crate) fn known(&self) -> (Vec<String>, Vec<String>) {
        self.heard.borrow().known.clone().unwrap()
    }

    pub(crate) fn heard(&self) -> Vec<String> {
        self.heard.borrow().events.clone()
    }

    pub(crate) fn env_seen(&self) -> Vec<String> {
        self.heard.borrow().env.clone()
    }

    pub(crate) fn annotations_seen(&self) -> HashMap<String, String> {
        self.heard.borrow().annotations.clone()
    }

    /// Waits until it has heard of the event.
    pub(crate) async fn has_heard(&self, event: &str) {
        self.wait(|heard| heard.events.iter().any(|known| known == event)).await;
    }

    pub(crate) fn validated(&self) -> ValidateContainerAdjustmentRequest {
        self.heard.borrow().validated.clone().unwrap()
    }

    pub(crate) async fn update_containers(
        &self,
        request: UpdateContainersRequest,
    ) -> ttrpc::Result<UpdateContainersResponse> {
        self.runtime.update_containers(context::Context::default(), &request).await
    }
}

impl Service {
    async fn hear(&self, event: &str) -> ttrpc::Result<()> {
        if self.answers.is_old {
            return Err(refusal(Code::UNIMPLEMENTED, "no such method"));
        }
        self.note(event);
        if self.answers.hangs { std::future::pending().await } else { Ok(()) }
    }

    fn note(&self, event: &str) {
        self.heard.send_modify(|heard| heard.events.push(event.to_owned()));
    }
}

macro_rules! hears {
    ($($method:ident: $request:ty => $response:ty, $name:literal;)+) => {
        #[async_trait]
        impl Plugin for Service {
            $(async fn $method(&self, _: &TtrpcContext, _: $request) -> ttrpc::Result<$response> {
                self.hear($name).await?;
                Ok(<$response>::new())
            })+

            async fn configure(&self, _: &TtrpcContext, request: ConfigureRequest) -> ttrpc::Result<ConfigureResponse> {
                self.heard.send_modify(|heard| heard.configuration = Some(request));
                Ok(ConfigureResponse { events: self.answers.events, ..Default::default() })
            }

            async fn synchronize(&self, _: &TtrpcContext, request: SynchronizeRequest) -> ttrpc::Result<SynchronizeResponse> {
                let pods = request.pods.into_iter().map(|pod| pod.id).collect();
                let containers = request.containers.into_iter().map(|container| container.id).collect();
                self.heard.send_modify(|heard| heard.known = Some((pods, containers)));
                Ok(SynchronizeResponse::new())
            }

            async fn create_container(&self, _: &TtrpcContext, request: CreateContainerRequest) -> ttrpc::Result<CreateContainerResponse> {
                self.heard.send_modify(|heard| heard.env = request.container.env.clone());
                self.hear("CreateContainer").await?;
                self.answers.create.clone().map_err(|(code, text)| refusal(code, text))
            }

            async fn stop_container(&self, _: &TtrpcContext, _: StopContainerRequest) -> ttrpc::Result<StopContainerResponse> {
                self.hear("StopContainer").await?;
                Ok(self.answers.stop.clone())
            }

            async fn post_start_container(&self, _: &TtrpcContext, request: PostStartContainerRequest) -> ttrpc::Result<PostStartContainerResponse> {
                let container = request.container.unwrap_or_default();
                self.heard.send_modify(|heard| heard.annotations = container.annotations);
                self.hear("PostStartContainer").await?;
                Ok(PostStartContainerResponse::new())
            }

            async fn validate_container_adjustment(
                &self,
                _: &TtrpcContext,
                request: ValidateContainerAdjustmentRequest,
            ) -> ttrpc::Result<ValidateContainerAdjustmentResponse> {
                self.heard.send_modify(|heard| heard.validated = Some(request));
                Ok(self.answers.validate.clone())
            }

            async fn state_change(&self, _: &TtrpcContext, request: StateChangeEvent) -> ttrpc::Result<Empty> {
                self.note(&format!("StateChange {:?}", request.event.unwrap()));
                Ok(Empty::new())
            }
        }
    };
}

hears! {
    run_pod_sandbox: RunPodSandboxRequest => RunPodSandboxResponse, "RunPodSandbox";
    stop_pod_sandbox: StopPodSandboxRequest => StopPodSandboxResponse, "StopPodSandbox";
    remove_pod_sandbox: RemovePodSandboxRequest => RemovePodSandboxResponse, "RemovePodSandbox";
    post_create_container: PostCreateContainerRequest => PostCreateContainerResponse, "PostCreateContainer";
    start_container: StartContainerRequest => StartContainerResponse, "StartContainer";
    update_container: UpdateContainerRequest => UpdateContainerResponse, "UpdateContainer";
    post_update_container: PostUpdateContainerRequest => PostUpdateContainerResponse, "PostUpdateContainer";
    remove_container: RemoveContainerRequest => RemoveContainerResponse, "RemoveContainer";
}

fn refusal(code: Code, text: impl ToString) -> ttrpc::Error {
    ttrpc::Error::RpcStatus(ttrpc::get_status(code, text))
}

/// A set of events, as it is on the wire.
pub(crate) fn bits(events: &[Event]) -> i32 {
    events.iter().fold(0, |bits, event| bits | 1 << (*event as i32 - 1))
}
