//! The RuntimeService's table: each RPC is a line that leads through the gate to its file. Those that
//! this version does not have say so by name.

use proto_cri::v1::runtime_service_server::RuntimeService;
use proto_cri::v1::*;
use tonic::{Request, Response, Status};

use crate::gate::{absent, gate};
use crate::serve::{Cri, NoStream};
use crate::{container, runtime, sandbox};

#[tonic::async_trait]
impl RuntimeService for Cri {
    type StreamPodSandboxesStream = NoStream<StreamPodSandboxesResponse>;
    type StreamContainersStream = NoStream<StreamContainersResponse>;
    type StreamContainerStatsStream = NoStream<StreamContainerStatsResponse>;
    type StreamPodSandboxStatsStream = NoStream<StreamPodSandboxStatsResponse>;
    type GetContainerEventsStream = NoStream<ContainerEventResponse>;
    type StreamPodSandboxMetricsStream = NoStream<StreamPodSandboxMetricsResponse>;

    async fn version(&self, _: Request<VersionRequest>) -> Result<Response<VersionResponse>, Status> {
        gate("Version", async { Ok(runtime::version::version()) }).await
    }

    async fn run_pod_sandbox(
        &self,
        r: Request<RunPodSandboxRequest>,
    ) -> Result<Response<RunPodSandboxResponse>, Status> {
        gate("RunPodSandbox", sandbox::run::run(&self.pods, r.into_inner())).await
    }

    async fn stop_pod_sandbox(
        &self,
        r: Request<StopPodSandboxRequest>,
    ) -> Result<Response<StopPodSandboxResponse>, Status> {
        gate("StopPodSandbox", sandbox::stop::stop(&self.pods, r.into_inner())).await
    }

    async fn remove_pod_sandbox(
        &self,
        r: Request<RemovePodSandboxRequest>,
    ) -> Result<Response<RemovePodSandboxResponse>, Status> {
        gate("RemovePodSandbox", sandbox::remove::remove(&self.pods, r.into_inner())).await
    }

    async fn pod_sandbox_status(
        &self,
        r: Request<PodSandboxStatusRequest>,
    ) -> Result<Response<PodSandboxStatusResponse>, Status> {
        gate("PodSandboxStatus", sandbox::status::status(&self.pods, r.into_inner())).await
    }

    async fn list_pod_sandbox(
        &self,
        r: Request<ListPodSandboxRequest>,
    ) -> Result<Response<ListPodSandboxResponse>, Status> {
        gate("ListPodSandbox", async { Ok(sandbox::list::list(&self.pods, r.into_inner())) }).await
    }

    async fn create_container(
        &self,
        r: Request<CreateContainerRequest>,
    ) -> Result<Response<CreateContainerResponse>, Status> {
        gate("CreateContainer", container::create::create(&self.pods, r.into_inner())).await
    }

    async fn start_container(
        &self,
        r: Request<StartContainerRequest>,
    ) -> Result<Response<StartContainerResponse>, Status> {
        gate("StartContainer", container::start::start(&self.pods, r.into_inner())).await
    }

    async fn stop_container(
        &self,
        r: Request<StopContainerRequest>,
    ) -> Result<Response<StopContainerResponse>, Status> {
        gate("StopContainer", container::stop::stop(&self.pods, r.into_inner())).await
    }

    async fn remove_container(
        &self,
        r: Request<RemoveContainerRequest>,
    ) -> Result<Response<RemoveContainerResponse>, Status> {
        gate("RemoveContainer", container::remove::remove(&self.pods, r.into_inner())).await
    }

    async fn list_containers(
        &self,
        r: Request<ListContainersRequest>,
    ) -> Result<Response<ListContainersResponse>, Status> {
        gate("ListContainers", async { Ok(container::list::list(&self.pods, r.into_inner())) }).await
    }

    async fn container_status(
        &self,
        r: Request<ContainerStatusRequest>,
    ) -> Result<Response<ContainerStatusResponse>, Status> {
        gate("ContainerStatus", async { container::status::status(&self.pods, r.into_inner()) }).await
    }

    async fn exec_sync(&self, r: Request<ExecSyncRequest>) -> Result<Response<ExecSyncResponse>, Status> {
        gate("ExecSync", container::exec_sync::exec_sync(&self.pods, r.into_inner())).await
    }

    async fn status(&self, r: Request<StatusRequest>) -> Result<Response<StatusResponse>, Status> {
        gate("Status", async { Ok(runtime::status::status(&self.node, r.into_inner())) }).await
    }

    async fn stream_pod_sandboxes(
        &self,
        _: Request<StreamPodSandboxesRequest>,
    ) -> Result<Response<Self::StreamPodSandboxesStream>, Status> {
        absent("StreamPodSandboxes")
    }

    async fn stream_containers(
        &self,
        _: Request<StreamContainersRequest>,
    ) -> Result<Response<Self::StreamContainersStream>, Status> {
        absent("StreamContainers")
    }

    async fn update_container_resources(
        &self,
        _: Request<UpdateContainerResourcesRequest>,
    ) -> Result<Response<UpdateContainerResourcesResponse>, Status> {
        absent("UpdateContainerResources")
    }

    async fn reopen_container_log(
        &self,
        _: Request<ReopenContainerLogRequest>,
    ) -> Result<Response<ReopenContainerLogResponse>, Status> {
        absent("ReopenContainerLog")
    }

    async fn exec(&self, _: Request<ExecRequest>) -> Result<Response<ExecResponse>, Status> {
        absent("Exec")
    }

    async fn attach(&self, _: Request<AttachRequest>) -> Result<Response<AttachResponse>, Status> {
        absent("Attach")
    }

    async fn port_forward(
        &self,
        _: Request<PortForwardRequest>,
    ) -> Result<Response<PortForwardResponse>, Status> {
        absent("PortForward")
    }

    async fn container_stats(
        &self,
        _: Request<ContainerStatsRequest>,
    ) -> Result<Response<ContainerStatsResponse>, Status> {
        absent("ContainerStats")
    }

    async fn list_container_stats(
        &self,
        _: Request<ListContainerStatsRequest>,
    ) -> Result<Response<ListContainerStatsResponse>, Status> {
        absent("ListContainerStats")
    }

    async fn stream_container_stats(
        &self,
        _: Request<StreamContainerStatsRequest>,
    ) -> Result<Response<Self::StreamContainerStatsStream>, Status> {
        absent("StreamContainerStats")
    }

    async fn pod_sandbox_stats(
        &self,
        _: Request<PodSandboxStatsRequest>,
    ) -> Result<Response<PodSandboxStatsResponse>, Status> {
        absent("PodSandboxStats")
    }

    async fn list_pod_sandbox_stats(
        &self,
        _: Request<ListPodSandboxStatsRequest>,
    ) -> Result<Response<ListPodSandboxStatsResponse>, Status> {
        absent("ListPodSandboxStats")
    }

    async fn stream_pod_sandbox_stats(
        &self,
        _: Request<StreamPodSandboxStatsRequest>,
    ) -> Result<Response<Self::StreamPodSandboxStatsStream>, Status> {
        absent("StreamPodSandboxStats")
    }

    async fn update_runtime_config(
        &self,
        _: Request<UpdateRuntimeConfigRequest>,
    ) -> Result<Response<UpdateRuntimeConfigResponse>, Status> {
        absent("UpdateRuntimeConfig")
    }

    async fn checkpoint_container(
        &self,
        _: Request<CheckpointContainerRequest>,
    ) -> Result<Response<CheckpointContainerResponse>, Status> {
        absent("CheckpointContainer")
    }

    async fn get_container_events(
        &self,
        _: Request<GetEventsRequest>,
    ) -> Result<Response<Self::GetContainerEventsStream>, Status> {
        absent("GetContainerEvents")
    }

    async fn list_metric_descriptors(
        &self,
        _: Request<ListMetricDescriptorsRequest>,
    ) -> Result<Response<ListMetricDescriptorsResponse>, Status> {
        absent("ListMetricDescriptors")
    }

    async fn list_pod_sandbox_metrics(
        &self,
        _: Request<ListPodSandboxMetricsRequest>,
    ) -> Result<Response<ListPodSandboxMetricsResponse>, Status> {
        absent("ListPodSandboxMetrics")
    }

    async fn stream_pod_sandbox_metrics(
        &self,
        _: Request<StreamPodSandboxMetricsRequest>,
    ) -> Result<Response<Self::StreamPodSandboxMetricsStream>, Status> {
        absent("StreamPodSandboxMetrics")
    }

    async fn runtime_config(
        &self,
        _: Request<RuntimeConfigRequest>,
    ) -> Result<Response<RuntimeConfigResponse>, Status> {
        absent("RuntimeConfig")
    }

    async fn update_pod_sandbox_resources(
        &self,
        _: Request<UpdatePodSandboxResourcesRequest>,
    ) -> Result<Response<UpdatePodSandboxResourcesResponse>, Status> {
        absent("UpdatePodSandboxResources")
    }
}
