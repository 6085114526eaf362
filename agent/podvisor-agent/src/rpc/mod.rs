//! The agent's RPCs, one file per group. Each only passes the gate ([`gate`]), forwards, and turns errors
//! into statuses ([`status`]). The contract is `agent.proto`.
//!
//! Calls with effects run in separate tasks. If the daemon goes away in the middle, they still run to their
//! end.

mod configure;
mod container;
mod gate;
mod host_sockets;
mod process;
mod reclaim;
mod resize;
mod stats;
mod status;
mod usage;
mod volume;

use std::sync::Arc;

use async_trait::async_trait;
use proto_agent::agent::{
    AttachHostSocketsRequest, ConfigurePodRequest, ConfigurePodResponse, CreateContainerRequest,
    CreateContainerResponse, Empty, ExecRequest, ExecResponse, HelloRequest, HelloResponse,
    PreparePodRequest, PublishVolumeRequest, PublishVolumeResponse, ReclaimRequest, ReclaimResponse,
    RemoveContainerRequest, ResizePodRequest, ResizeVolumeRequest, ShutdownRequest, SignalRequest,
    SignalResponse, StartContainerRequest, StatsRequest, StatsResponse, UpdateContainerRequest, UsageRequest,
    UsageResponse, WaitRequest, WaitResponse,
};
use proto_agent::agent_ttrpc::Agent;
use ttrpc::r#async::TtrpcContext;

use crate::pod::Pod;
use crate::rpc::gate::Gate;

/// The service of one pod.
#[derive(Clone, Debug)]
pub(crate) struct Service {
    gate: Gate,
}

impl Service {
    pub(crate) fn new(pod: Arc<Pod>) -> Service {
        Service { gate: Gate { pod } }
    }
}

#[async_trait]
impl Agent for Service {
    async fn hello(&self, _: &TtrpcContext, request: HelloRequest) -> ttrpc::Result<HelloResponse> {
        configure::hello(&request)
    }

    async fn prepare_pod(&self, _: &TtrpcContext, request: PreparePodRequest) -> ttrpc::Result<Empty> {
        configure::prepare(&self.gate, request).await
    }

    async fn configure_pod(
        &self,
        _: &TtrpcContext,
        request: ConfigurePodRequest,
    ) -> ttrpc::Result<ConfigurePodResponse> {
        configure::pod(&self.gate, request).await
    }

    async fn create_container(
        &self,
        _: &TtrpcContext,
        request: CreateContainerRequest,
    ) -> ttrpc::Result<CreateContainerResponse> {
        container::create(&self.gate, request).await
    }

    async fn start_container(
        &self,
        _: &TtrpcContext,
        request: StartContainerRequest,
    ) -> ttrpc::Result<Empty> {
        container::start(&self.gate, request).await
    }

    async fn update_container(
        &self,
        _: &TtrpcContext,
        request: UpdateContainerRequest,
    ) -> ttrpc::Result<Empty> {
        container::update(&self.gate, request).await
    }

    async fn resize_pod(&self, _: &TtrpcContext, request: ResizePodRequest) -> ttrpc::Result<Empty> {
        resize::pod(&self.gate, request).await
    }

    async fn resize_volume(&self, _: &TtrpcContext, request: ResizeVolumeRequest) -> ttrpc::Result<Empty> {
        volume::resize(&self.gate, request).await
    }

    async fn publish_volume(
        &self,
        _: &TtrpcContext,
        request: PublishVolumeRequest,
    ) -> ttrpc::Result<PublishVolumeResponse> {
        volume::publish(&self.gate, request).await
    }

    async fn remove_container(
        &self,
        _: &TtrpcContext,
        request: RemoveContainerRequest,
    ) -> ttrpc::Result<Empty> {
        container::remove(&self.gate, request).await
    }

    async fn attach_host_sockets(
        &self,
        _: &TtrpcContext,
        request: AttachHostSocketsRequest,
    ) -> ttrpc::Result<Empty> {
        host_sockets::attach(&self.gate, request).await
    }

    async fn exec(&self, _: &TtrpcContext, request: ExecRequest) -> ttrpc::Result<ExecResponse> {
        process::exec(&self.gate, request).await
    }

    async fn wait(&self, _: &TtrpcContext, request: WaitRequest) -> ttrpc::Result<WaitResponse> {
        process::wait(&self.gate, request).await
    }

    async fn signal(&self, _: &TtrpcContext, request: SignalRequest) -> ttrpc::Result<SignalResponse> {
        process::signal(&self.gate, request).await
    }

    async fn stats(&self, _: &TtrpcContext, request: StatsRequest) -> ttrpc::Result<StatsResponse> {
        stats::stats(&self.gate, request).await
    }

    async fn reclaim(&self, _: &TtrpcContext, _: ReclaimRequest) -> ttrpc::Result<ReclaimResponse> {
        reclaim::reclaim(&self.gate).await
    }

    async fn usage(&self, _: &TtrpcContext, request: UsageRequest) -> ttrpc::Result<UsageResponse> {
        usage::usage(&self.gate, request).await
    }

    async fn shutdown(&self, _: &TtrpcContext, request: ShutdownRequest) -> ttrpc::Result<Empty> {
        container::shutdown(&self.gate, request).await
    }
}
