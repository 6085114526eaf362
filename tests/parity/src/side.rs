//! One of the two runtimes, and the calls to it. Each call has a timeout: if a runtime hangs, the timeout is
//! its answer.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Result;
use proto_cri::v1;
use proto_cri::v1::image_service_client::ImageServiceClient;
use proto_cri::v1::runtime_service_client::RuntimeServiceClient;
use tests_e2e::client::Client;
use tests_e2e::wait::within;
use tonic::transport::Channel;
use tonic::{Code, Response, Status};

use crate::case::Pod;
use crate::request;

/// Longest answer to a call. A software node is slow, and no call of a case takes a tenth of it.
const CALL_LIMIT: Duration = Duration::from_secs(180);
/// Longest life of a container ending by itself.
const LIFE_LIMIT: Duration = Duration::from_secs(180);
/// After so many containers, the cases' shared pod is replaced.
const CONTAINERS_PER_POD: u32 = 60;

/// A runtime.
#[derive(Debug)]
pub(crate) struct Side {
    /// Name in reports.
    pub(crate) name: &'static str,
    runtime: RuntimeServiceClient<Channel>,
    images: ImageServiceClient<Channel>,
    dir: PathBuf,
    pods: u32,
    shared: Option<(RunningPod, u32)>,
}

/// A running pod.
#[derive(Clone, Debug)]
pub(crate) struct RunningPod {
    /// The pod's id.
    pub(crate) id: String,
    /// The pod, as it was asked for.
    pub(crate) config: v1::PodSandboxConfig,
}

async fn bounded<T>(call: impl Future<Output = Result<Response<T>, Status>>) -> Result<T, Status> {
    match tokio::time::timeout(CALL_LIMIT, call).await {
        Ok(answer) => answer.map(Response::into_inner),
        Err(_) => Err(Status::deadline_exceeded(format!("no answer within {} s", CALL_LIMIT.as_secs()))),
    }
}

impl Side {
    /// The runtime of this client, with logs and sources of mounts below `dir`.
    pub(crate) fn new(name: &'static str, client: &Client, dir: &Path) -> Side {
        let channel = client.channel.clone();
        Side {
            name,
            runtime: RuntimeServiceClient::new(channel.clone()),
            images: ImageServiceClient::new(channel),
            dir: dir.to_owned(),
            pods: 0,
            shared: None,
        }
    }

    /// A new directory for a run of a case.
    ///
    /// # Errors
    /// When it cannot be made.
    pub(crate) fn run_dir(&self) -> Result<tempfile::TempDir> {
        // A volume of a user other than root is below it.
        let dir = tempfile::Builder::new().prefix("run-").tempdir_in(&self.dir)?;
        let open = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        std::fs::set_permissions(dir.path(), open)?;
        Ok(dir)
    }

    /// PullImage; returns the image's id.
    pub(crate) async fn pull(&mut self, reference: &str) -> Result<String, Status> {
        let image = Some(v1::ImageSpec { image: reference.into(), ..Default::default() });
        let request = v1::PullImageRequest { image, ..Default::default() };
        Ok(bounded(self.images.pull_image(request)).await?.image_ref)
    }

    /// ImageStatus. `None` if the runtime has no such image.
    pub(crate) async fn image(&mut self, name: &str) -> Result<Option<v1::Image>, Status> {
        let image = Some(v1::ImageSpec { image: name.into(), ..Default::default() });
        let request = v1::ImageStatusRequest { image, verbose: false };
        Ok(bounded(self.images.image_status(request)).await?.image)
    }

    /// A call without a method here.
    pub(crate) async fn call<T>(
        &mut self,
        call: impl AsyncFnOnce(
            &mut RuntimeServiceClient<Channel>,
            &mut ImageServiceClient<Channel>,
        ) -> Result<Response<T>, Status>,
    ) -> Result<T, Status> {
        bounded(call(&mut self.runtime, &mut self.images)).await
    }

    /// The configuration of a new pod, with a uid of its own.
    pub(crate) fn pod_config(&mut self, pod: &Pod) -> v1::PodSandboxConfig {
        self.pods += 1;
        let uid = format!("{}-{}", self.name, self.pods);
        request::pod(pod, &uid, &self.dir.join(&uid))
    }

    /// RunPodSandbox.
    pub(crate) async fn run_pod(&mut self, pod: &Pod) -> Result<RunningPod, Status> {
        let config = self.pod_config(pod);
        self.run_configured(config, String::new()).await
    }

    /// RunPodSandbox of this configuration, by this handler.
    pub(crate) async fn run_configured(
        &mut self,
        config: v1::PodSandboxConfig,
        runtime_handler: String,
    ) -> Result<RunningPod, Status> {
        let request = v1::RunPodSandboxRequest { config: Some(config.clone()), runtime_handler };
        let id = bounded(self.runtime.run_pod_sandbox(request)).await?.pod_sandbox_id;
        Ok(RunningPod { id, config })
    }

    /// The pod of the cases without a need for their own. A new one is made after some containers.
    pub(crate) async fn shared_pod(&mut self) -> Result<RunningPod, Status> {
        if self.shared.as_ref().is_some_and(|(_, used)| *used == CONTAINERS_PER_POD) {
            self.end().await;
        }
        if let Some((pod, used)) = &mut self.shared {
            *used += 1;
            return Ok(pod.clone());
        }
        let pod = self.run_pod(&Pod::default()).await?;
        self.shared = Some((pod.clone(), 1));
        Ok(pod)
    }

    /// Removes the cases' shared pod. The next case gets a new one: for use after a case with possible
    /// leftovers in it.
    pub(crate) async fn end(&mut self) {
        if let Some((pod, _)) = self.shared.take() {
            self.remove_pod(&pod.id).await;
        }
    }

    /// StopPodSandbox and RemovePodSandbox.
    pub(crate) async fn remove_pod(&mut self, id: &str) {
        let stop = v1::StopPodSandboxRequest { pod_sandbox_id: id.into() };
        let stopped = bounded(self.runtime.stop_pod_sandbox(stop)).await.map(drop);
        let remove = v1::RemovePodSandboxRequest { pod_sandbox_id: id.into() };
        let removed = bounded(self.runtime.remove_pod_sandbox(remove)).await.map(drop);
        for error in [stopped, removed].into_iter().filter_map(Result::err) {
            eprintln!("parity: {}: removing pod {id}: {error}", self.name);
        }
    }

    /// CreateContainer; returns the container's id.
    pub(crate) async fn create(
        &mut self,
        pod: &RunningPod,
        config: v1::ContainerConfig,
    ) -> Result<String, Status> {
        let request = v1::CreateContainerRequest {
            pod_sandbox_id: pod.id.clone(),
            config: Some(config),
            sandbox_config: Some(pod.config.clone()),
        };
        Ok(bounded(self.runtime.create_container(request)).await?.container_id)
    }

    /// StartContainer.
    pub(crate) async fn start(&mut self, id: &str) -> Result<(), Status> {
        let request = v1::StartContainerRequest { container_id: id.into() };
        bounded(self.runtime.start_container(request)).await.map(drop)
    }

    /// ExecSync.
    pub(crate) async fn exec(
        &mut self,
        id: &str,
        cmd: &[String],
        timeout: i64,
    ) -> Result<v1::ExecSyncResponse, Status> {
        let request = v1::ExecSyncRequest { container_id: id.into(), cmd: cmd.to_vec(), timeout };
        bounded(self.runtime.exec_sync(request)).await
    }

    /// StopContainer.
    pub(crate) async fn stop(&mut self, id: &str, timeout: i64) -> Result<(), Status> {
        let request = v1::StopContainerRequest { container_id: id.into(), timeout };
        bounded(self.runtime.stop_container(request)).await.map(drop)
    }

    /// RemoveContainer.
    pub(crate) async fn remove(&mut self, id: &str) -> Result<(), Status> {
        let request = v1::RemoveContainerRequest { container_id: id.into() };
        bounded(self.runtime.remove_container(request)).await.map(drop)
    }

    /// ContainerStatus.
    pub(crate) async fn status(&mut self, id: &str) -> Result<v1::ContainerStatus, Status> {
        let request = v1::ContainerStatusRequest { container_id: id.into(), verbose: false };
        let status = bounded(self.runtime.container_status(request)).await?.status;
        status.ok_or_else(|| Status::internal("an answer without a status"))
    }

    /// The container's status once it has ended.
    pub(crate) async fn ended(&mut self, id: &str) -> Result<v1::ContainerStatus, Status> {
        let ended = within(LIFE_LIMIT, async || match self.status(id).await {
            Ok(status) if status.state() != v1::ContainerState::ContainerExited => {
                Err(Status::new(Code::DeadlineExceeded, "the container goes on"))
            }
            answer => Ok(answer),
        });
        ended.await?
    }
}
