//! CRI v1alpha2 on the same socket, for kubelets up to 1.25: v1's answers, call by call. The messages are
//! v1's own types. The generated server refuses RPCs missing in v1alpha2 as unimplemented.

use proto_cri::v1::image_service_server::ImageService;
use proto_cri::v1::runtime_service_server::RuntimeService;
use proto_cri::v1::*;
use proto_cri::v1alpha2;
use tonic::{Request, Response, Status};

use crate::serve::Cri;

#[tonic::async_trait]
impl v1alpha2::runtime_service_server::RuntimeService for Cri {
    async fn version(&self, r: Request<VersionRequest>) -> Result<Response<VersionResponse>, Status> {
        let mut answer = RuntimeService::version(self, r).await?;
        answer.get_mut().runtime_api_version = "v1alpha2".into();
        Ok(answer)
    }

    async fn run_pod_sandbox(
        &self,
        r: Request<RunPodSandboxRequest>,
    ) -> Result<Response<RunPodSandboxResponse>, Status> {
        RuntimeService::run_pod_sandbox(self, r).await
    }

    async fn stop_pod_sandbox(
        &self,
        r: Request<StopPodSandboxRequest>,
    ) -> Result<Response<StopPodSandboxResponse>, Status> {
        RuntimeService::stop_pod_sandbox(self, r).await
    }

    async fn remove_pod_sandbox(
        &self,
        r: Request<RemovePodSandboxRequest>,
    ) -> Result<Response<RemovePodSandboxResponse>, Status> {
        RuntimeService::remove_pod_sandbox(self, r).await
    }

    async fn pod_sandbox_status(
        &self,
        r: Request<PodSandboxStatusRequest>,
    ) -> Result<Response<PodSandboxStatusResponse>, Status> {
        RuntimeService::pod_sandbox_status(self, r).await
    }

    async fn list_pod_sandbox(
        &self,
        r: Request<ListPodSandboxRequest>,
    ) -> Result<Response<ListPodSandboxResponse>, Status> {
        RuntimeService::list_pod_sandbox(self, r).await
    }

    async fn create_container(
        &self,
        r: Request<CreateContainerRequest>,
    ) -> Result<Response<CreateContainerResponse>, Status> {
        RuntimeService::create_container(self, r).await
    }

    async fn start_container(
        &self,
        r: Request<StartContainerRequest>,
    ) -> Result<Response<StartContainerResponse>, Status> {
        RuntimeService::start_container(self, r).await
    }

    async fn stop_container(
        &self,
        r: Request<StopContainerRequest>,
    ) -> Result<Response<StopContainerResponse>, Status> {
        RuntimeService::stop_container(self, r).await
    }

    async fn remove_container(
        &self,
        r: Request<RemoveContainerRequest>,
    ) -> Result<Response<RemoveContainerResponse>, Status> {
        RuntimeService::remove_container(self, r).await
    }

    async fn list_containers(
        &self,
        r: Request<ListContainersRequest>,
    ) -> Result<Response<ListContainersResponse>, Status> {
        RuntimeService::list_containers(self, r).await
    }

    async fn container_status(
        &self,
        r: Request<ContainerStatusRequest>,
    ) -> Result<Response<ContainerStatusResponse>, Status> {
        RuntimeService::container_status(self, r).await
    }

    async fn update_container_resources(
        &self,
        r: Request<UpdateContainerResourcesRequest>,
    ) -> Result<Response<UpdateContainerResourcesResponse>, Status> {
        RuntimeService::update_container_resources(self, r).await
    }

    async fn reopen_container_log(
        &self,
        r: Request<ReopenContainerLogRequest>,
    ) -> Result<Response<ReopenContainerLogResponse>, Status> {
        RuntimeService::reopen_container_log(self, r).await
    }

    async fn exec_sync(&self, r: Request<ExecSyncRequest>) -> Result<Response<ExecSyncResponse>, Status> {
        RuntimeService::exec_sync(self, r).await
    }

    async fn exec(&self, r: Request<ExecRequest>) -> Result<Response<ExecResponse>, Status> {
        RuntimeService::exec(self, r).await
    }

    async fn attach(&self, r: Request<AttachRequest>) -> Result<Response<AttachResponse>, Status> {
        RuntimeService::attach(self, r).await
    }

    async fn port_forward(
        &self,
        r: Request<PortForwardRequest>,
    ) -> Result<Response<PortForwardResponse>, Status> {
        RuntimeService::port_forward(self, r).await
    }

    async fn container_stats(
        &self,
        r: Request<ContainerStatsRequest>,
    ) -> Result<Response<ContainerStatsResponse>, Status> {
        RuntimeService::container_stats(self, r).await
    }

    async fn list_container_stats(
        &self,
        r: Request<ListContainerStatsRequest>,
    ) -> Result<Response<ListContainerStatsResponse>, Status> {
        RuntimeService::list_container_stats(self, r).await
    }

    async fn pod_sandbox_stats(
        &self,
        r: Request<PodSandboxStatsRequest>,
    ) -> Result<Response<PodSandboxStatsResponse>, Status> {
        RuntimeService::pod_sandbox_stats(self, r).await
    }

    async fn list_pod_sandbox_stats(
        &self,
        r: Request<ListPodSandboxStatsRequest>,
    ) -> Result<Response<ListPodSandboxStatsResponse>, Status> {
        RuntimeService::list_pod_sandbox_stats(self, r).await
    }

    async fn update_runtime_config(
        &self,
        r: Request<UpdateRuntimeConfigRequest>,
    ) -> Result<Response<UpdateRuntimeConfigResponse>, Status> {
        RuntimeService::update_runtime_config(self, r).await
    }

    async fn status(&self, r: Request<StatusRequest>) -> Result<Response<StatusResponse>, Status> {
        RuntimeService::status(self, r).await
    }
}

#[tonic::async_trait]
impl v1alpha2::image_service_server::ImageService for Cri {
    async fn list_images(
        &self,
        r: Request<ListImagesRequest>,
    ) -> Result<Response<ListImagesResponse>, Status> {
        ImageService::list_images(self, r).await
    }

    async fn image_status(
        &self,
        r: Request<ImageStatusRequest>,
    ) -> Result<Response<ImageStatusResponse>, Status> {
        ImageService::image_status(self, r).await
    }

    async fn pull_image(&self, r: Request<PullImageRequest>) -> Result<Response<PullImageResponse>, Status> {
        ImageService::pull_image(self, r).await
    }

    async fn remove_image(
        &self,
        r: Request<RemoveImageRequest>,
    ) -> Result<Response<RemoveImageResponse>, Status> {
        ImageService::remove_image(self, r).await
    }

    async fn image_fs_info(
        &self,
        r: Request<ImageFsInfoRequest>,
    ) -> Result<Response<ImageFsInfoResponse>, Status> {
        ImageService::image_fs_info(self, r).await
    }
}
