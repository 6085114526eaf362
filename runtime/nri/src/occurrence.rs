//! Events without adjustments: a plugin may only accept or refuse them.

use proto_nri::nri::Event::*;
use proto_nri::nri::{
    Container, Event, PodSandbox, PostCreateContainerRequest, PostStartContainerRequest,
    PostUpdateContainerRequest, PostUpdatePodSandboxRequest, RemoveContainerRequest, RemovePodSandboxRequest,
    RunPodSandboxRequest, StartContainerRequest, StateChangeEvent, StopPodSandboxRequest,
};
use proto_nri::nri_ttrpc::PluginClient;
use ttrpc::context::Context;
use ttrpc::proto::Code;

/// An event of a pod, or of a container of a pod.
#[derive(Clone, Debug)]
pub struct Occurrence {
    /// The event.
    pub(crate) event: Event,
    pod: PodSandbox,
    container: Option<Container>,
}

impl Occurrence {
    /// An event of a pod: it runs, was updated, stops or was removed.
    pub fn of_pod(event: Event, pod: PodSandbox) -> Occurrence {
        Occurrence { event, pod, container: None }
    }

    /// An event of a container: it was created, starts, was started, was updated or was removed.
    pub fn of_container(event: Event, pod: PodSandbox, container: Container) -> Occurrence {
        Occurrence { event, pod, container: Some(container) }
    }

    /// Sends the event. A plugin older than the event's own RPC gets it as a state change.
    pub(crate) async fn send(
        &self,
        client: &PluginClient,
        new_context: impl Fn() -> Context,
    ) -> ttrpc::Result<()> {
        match self.send_as_rpc(client, new_context()).await {
            Err(ttrpc::Error::RpcStatus(status)) if status.code() == Code::UNIMPLEMENTED => {
                let change = StateChangeEvent {
                    event: self.event.into(),
                    pod: Some(self.pod.clone()).into(),
                    container: self.container.clone().into(),
                    ..Default::default()
                };
                client.state_change(new_context(), &change).await.map(drop)
            }
            outcome => outcome,
        }
    }

    async fn send_as_rpc(&self, client: &PluginClient, context: Context) -> ttrpc::Result<()> {
        macro_rules! of_pod {
            ($request:ident, $method:ident) => {{
                let request = $request { pod: Some(self.pod.clone()).into(), ..Default::default() };
                client.$method(context, &request).await.map(drop)
            }};
        }
        macro_rules! of_container {
            ($request:ident, $method:ident) => {{
                let (pod, container) = (Some(self.pod.clone()).into(), self.container.clone().into());
                let request = $request { pod, container, ..Default::default() };
                client.$method(context, &request).await.map(drop)
            }};
        }
        match self.event {
            RUN_POD_SANDBOX => of_pod!(RunPodSandboxRequest, run_pod_sandbox),
            POST_UPDATE_POD_SANDBOX => of_pod!(PostUpdatePodSandboxRequest, post_update_pod_sandbox),
            STOP_POD_SANDBOX => of_pod!(StopPodSandboxRequest, stop_pod_sandbox),
            REMOVE_POD_SANDBOX => of_pod!(RemovePodSandboxRequest, remove_pod_sandbox),
            POST_CREATE_CONTAINER => of_container!(PostCreateContainerRequest, post_create_container),
            START_CONTAINER => of_container!(StartContainerRequest, start_container),
            POST_START_CONTAINER => of_container!(PostStartContainerRequest, post_start_container),
            POST_UPDATE_CONTAINER => of_container!(PostUpdateContainerRequest, post_update_container),
            REMOVE_CONTAINER => of_container!(RemoveContainerRequest, remove_container),
            // The other events have answers, and their own methods.
            _ => Ok(()),
        }
    }
}
