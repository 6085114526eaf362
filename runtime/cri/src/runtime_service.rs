//! The RuntimeService's table: one line per RPC, through the gate to its file.

use proto_cri::v1::runtime_service_server::RuntimeService;
use proto_cri::v1::*;
use tonic::{Request, Response, Status};

use crate::gate::gate;
use crate::serve::Cri;
use crate::stream::Streamed;
use crate::{container, events, runtime, sandbox, stats};

#[tonic::async_trait]
impl RuntimeService for Cri {
    type StreamPodSandboxesStream = Streamed<StreamPodSandboxesResponse>;
    type StreamContainersStream = Streamed<StreamContainersResponse>;
    type StreamContainerStatsStream = Streamed<StreamContainerStatsResponse>;
    type StreamPodSandboxStatsStream = Streamed<StreamPodSandboxStatsResponse>;
    type GetContainerEventsStream = Streamed<ContainerEventResponse>;
    type StreamPodSandboxMetricsStream = Streamed<StreamPodSandboxMetricsResponse>;

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
        gate("ListPodSandbox", async { Ok(sandbox::list::list(self, r.into_inner())) }).await
    }

    async fn create_container(
        &self,
        r: Request<CreateContainerRequest>,
    ) -> Result<Response<CreateContainerResponse>, Status> {
        gate("CreateContainer", container::create::create(&self.pods, &self.cdi, r.into_inner())).await
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
        gate("ListContainers", async { Ok(container::list::list(self, r.into_inner())) }).await
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
        gate("Status", runtime::status::status(self.node.clone(), &self.pods, r.into_inner())).await
    }

    async fn stream_pod_sandboxes(
        &self,
        r: Request<StreamPodSandboxesRequest>,
    ) -> Result<Response<Self::StreamPodSandboxesStream>, Status> {
        gate("StreamPodSandboxes", sandbox::stream::stream(self, r.into_inner())).await
    }

    async fn stream_containers(
        &self,
        r: Request<StreamContainersRequest>,
    ) -> Result<Response<Self::StreamContainersStream>, Status> {
        gate("StreamContainers", container::stream::stream(self, r.into_inner())).await
    }

    async fn update_container_resources(
        &self,
        r: Request<UpdateContainerResourcesRequest>,
    ) -> Result<Response<UpdateContainerResourcesResponse>, Status> {
        gate("UpdateContainerResources", container::update_resources::update_resources(self, r.into_inner()))
            .await
    }

    async fn reopen_container_log(
        &self,
        r: Request<ReopenContainerLogRequest>,
    ) -> Result<Response<ReopenContainerLogResponse>, Status> {
        gate("ReopenContainerLog", container::reopen_log::reopen_log(self, r.into_inner())).await
    }

    async fn exec(&self, r: Request<ExecRequest>) -> Result<Response<ExecResponse>, Status> {
        gate("Exec", container::exec::exec(self, r.into_inner())).await
    }

    async fn attach(&self, r: Request<AttachRequest>) -> Result<Response<AttachResponse>, Status> {
        gate("Attach", container::attach::attach(self, r.into_inner())).await
    }

    async fn port_forward(
        &self,
        r: Request<PortForwardRequest>,
    ) -> Result<Response<PortForwardResponse>, Status> {
        gate("PortForward", sandbox::port_forward::port_forward(self, r.into_inner())).await
    }

    async fn container_stats(
        &self,
        r: Request<ContainerStatsRequest>,
    ) -> Result<Response<ContainerStatsResponse>, Status> {
        gate("ContainerStats", stats::container::container(self, r.into_inner())).await
    }

    async fn list_container_stats(
        &self,
        r: Request<ListContainerStatsRequest>,
    ) -> Result<Response<ListContainerStatsResponse>, Status> {
        gate("ListContainerStats", stats::list_containers::list_containers(self, r.into_inner())).await
    }

    async fn stream_container_stats(
        &self,
        r: Request<StreamContainerStatsRequest>,
    ) -> Result<Response<Self::StreamContainerStatsStream>, Status> {
        gate("StreamContainerStats", stats::stream_containers::stream_containers(self, r.into_inner())).await
    }

    async fn pod_sandbox_stats(
        &self,
        r: Request<PodSandboxStatsRequest>,
    ) -> Result<Response<PodSandboxStatsResponse>, Status> {
        gate("PodSandboxStats", stats::pod::pod(self, r.into_inner())).await
    }

    async fn list_pod_sandbox_stats(
        &self,
        r: Request<ListPodSandboxStatsRequest>,
    ) -> Result<Response<ListPodSandboxStatsResponse>, Status> {
        gate("ListPodSandboxStats", stats::list_pods::list_pods(self, r.into_inner())).await
    }

    async fn stream_pod_sandbox_stats(
        &self,
        r: Request<StreamPodSandboxStatsRequest>,
    ) -> Result<Response<Self::StreamPodSandboxStatsStream>, Status> {
        gate("StreamPodSandboxStats", stats::stream_pods::stream_pods(self, r.into_inner())).await
    }

    async fn update_runtime_config(
        &self,
        r: Request<UpdateRuntimeConfigRequest>,
    ) -> Result<Response<UpdateRuntimeConfigResponse>, Status> {
        gate("UpdateRuntimeConfig", runtime::update_config::update_config(self, r.into_inner())).await
    }

    async fn checkpoint_container(
        &self,
        r: Request<CheckpointContainerRequest>,
    ) -> Result<Response<CheckpointContainerResponse>, Status> {
        gate("CheckpointContainer", container::checkpoint::checkpoint(self, r.into_inner())).await
    }

    async fn get_container_events(
        &self,
        r: Request<GetEventsRequest>,
    ) -> Result<Response<Self::GetContainerEventsStream>, Status> {
        gate("GetContainerEvents", events::events(self, r.into_inner())).await
    }

    async fn list_metric_descriptors(
        &self,
        r: Request<ListMetricDescriptorsRequest>,
    ) -> Result<Response<ListMetricDescriptorsResponse>, Status> {
        gate("ListMetricDescriptors", stats::metric_descriptors::metric_descriptors(self, r.into_inner()))
            .await
    }

    async fn list_pod_sandbox_metrics(
        &self,
        r: Request<ListPodSandboxMetricsRequest>,
    ) -> Result<Response<ListPodSandboxMetricsResponse>, Status> {
        gate("ListPodSandboxMetrics", stats::list_metrics::list_metrics(self, r.into_inner())).await
    }

    async fn stream_pod_sandbox_metrics(
        &self,
        r: Request<StreamPodSandboxMetricsRequest>,
    ) -> Result<Response<Self::StreamPodSandboxMetricsStream>, Status> {
        gate("StreamPodSandboxMetrics", stats::stream_metrics::stream_metrics(self, r.into_inner())).await
    }

    async fn runtime_config(
        &self,
        r: Request<RuntimeConfigRequest>,
    ) -> Result<Response<RuntimeConfigResponse>, Status> {
        gate("RuntimeConfig", runtime::config::config(self, r.into_inner())).await
    }

    async fn update_pod_sandbox_resources(
        &self,
        r: Request<UpdatePodSandboxResourcesRequest>,
    ) -> Result<Response<UpdatePodSandboxResourcesResponse>, Status> {
        gate("UpdatePodSandboxResources", sandbox::update_resources::update_resources(self, r.into_inner()))
            .await
    }
}
