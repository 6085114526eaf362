//! A CRI client: the calls of the tests, without the wrapping of requests.

use std::path::{Path, PathBuf};
use std::time::Duration;

use hyper_util::rt::TokioIo;
use nix::unistd::Pid;
use proto_cri::v1;
use proto_cri::v1::image_service_client::ImageServiceClient;
use proto_cri::v1::runtime_service_client::RuntimeServiceClient;
use tokio::net::UnixStream;
use tonic::transport::{Channel, Endpoint, Uri};
use tonic::{Request, Status};

use crate::checked::{Images, Runtime};
use crate::wait::{WITHIN, until_seen, within};

/// Longest message in either direction, bytes.
const MESSAGE_BYTES_MAX: usize = 16 * 1024 * 1024;

/// Longest time for a container to end before the test fails. Only a hang takes so long: emulated nodes are
/// slow, and some slower than others.
const EXIT_TIMEOUT: Duration = Duration::from_secs(1200);

/// Both services of one daemon. Every answer is held against the API's rules; see [`crate::checked`].
#[derive(Clone, Debug)]
pub struct Client {
    /// The connection, for services without a client here.
    pub channel: Channel,
    /// The runtime's calls without a method here.
    pub runtime: Runtime,
    /// The images' calls without a method here.
    pub images: Images,
}

impl Client {
    /// Dials the socket.
    ///
    /// # Errors
    /// If nothing listens.
    pub async fn connect(socket: &Path) -> Result<Client, tonic::transport::Error> {
        let path: PathBuf = socket.to_owned();
        let channel = Endpoint::from_static("http://localhost")
            .connect_with_connector(tower::service_fn(move |_: Uri| {
                let path = path.clone();
                async move { UnixStream::connect(path).await.map(TokioIo::new) }
            }))
            .await?;
        Ok(Client {
            runtime: Runtime(
                RuntimeServiceClient::new(channel.clone()).max_decoding_message_size(MESSAGE_BYTES_MAX),
            ),
            images: Images(
                ImageServiceClient::new(channel.clone()).max_decoding_message_size(MESSAGE_BYTES_MAX),
            ),
            channel,
        })
    }

    /// PullImage; returns the image's id.
    pub async fn pull(&mut self, image: &str) -> Result<String, Status> {
        let image = Some(v1::ImageSpec { image: image.into(), ..Default::default() });
        let request = v1::PullImageRequest { image, ..Default::default() };
        Ok(self.images.pull_image(request).await?.into_inner().image_ref)
    }

    /// ImageFsInfo: the bytes of all images, and their directory.
    pub async fn image_usage(&mut self) -> Result<(u64, PathBuf), Status> {
        let info = self.images.image_fs_info(v1::ImageFsInfoRequest {}).await?.into_inner();
        let found = info.image_filesystems.into_iter().next().expect("a file system of images");
        let bytes = found.used_bytes.expect("the bytes in use").value;
        Ok((bytes, found.fs_id.expect("the file system's directory").mountpoint.into()))
    }

    /// RunPodSandbox on the default handler; returns the pod's id.
    pub async fn run_pod(&mut self, config: &v1::PodSandboxConfig) -> Result<String, Status> {
        self.run_pod_on(config, "").await
    }

    /// RunPodSandbox on the named handler; returns the pod's id.
    pub async fn run_pod_on(
        &mut self,
        config: &v1::PodSandboxConfig,
        handler: &str,
    ) -> Result<String, Status> {
        let request =
            v1::RunPodSandboxRequest { config: Some(config.clone()), runtime_handler: handler.into() };
        Ok(self.runtime.run_pod_sandbox(request).await?.into_inner().pod_sandbox_id)
    }

    /// StopPodSandbox.
    pub async fn stop_pod(&mut self, pod: &str) -> Result<(), Status> {
        let request = v1::StopPodSandboxRequest { pod_sandbox_id: pod.into() };
        self.runtime.stop_pod_sandbox(request).await.map(|_| ())
    }

    /// RemovePodSandbox.
    pub async fn remove_pod(&mut self, pod: &str) -> Result<(), Status> {
        let request = v1::RemovePodSandboxRequest { pod_sandbox_id: pod.into() };
        self.runtime.remove_pod_sandbox(request).await.map(|_| ())
    }

    /// PodSandboxStatus.
    pub async fn pod_status(&mut self, pod: &str) -> Result<v1::PodSandboxStatus, Status> {
        Ok(self.pod_status_verbose(pod).await?.0)
    }

    /// PodSandboxStatus with the verbose `info`, parsed.
    pub async fn pod_status_verbose(
        &mut self,
        pod: &str,
    ) -> Result<(v1::PodSandboxStatus, serde_json::Value), Status> {
        let request = v1::PodSandboxStatusRequest { pod_sandbox_id: pod.into(), verbose: true };
        let answer = self.runtime.pod_sandbox_status(request).await?.into_inner();
        let info =
            answer.info.get("info").and_then(|text| serde_json::from_str(text).ok()).unwrap_or_default();
        Ok((answer.status.expect("a status in the answer"), info))
    }

    /// The verbose `info` of PodSandboxStatus, as soon as there is something at this JSON pointer. The daemon
    /// leaves out values not found yet after its start, and values of a slow VM.
    ///
    /// # Panics
    /// When there goes on to be nothing.
    pub async fn pod_info(&mut self, pod: &str, pointer: &str) -> Result<serde_json::Value, Status> {
        let event = format!("{pointer} in the status of pod {pod}");
        until_seen(event, async || match self.pod_status_verbose(pod).await {
            Ok((_, info)) if info.pointer(pointer).is_none_or(serde_json::Value::is_null) => Err(info),
            answer => Ok(answer.map(|(_, info)| info)),
        })
        .await
    }

    /// The process of the pod's VMM.
    ///
    /// # Panics
    /// When the status goes on to have none.
    pub async fn vmm(&mut self, pod: &str) -> Result<Pid, Status> {
        let pid = self.pod_info(pod, "/vmm/pid").await?["vmm"]["pid"].as_i64();
        Ok(Pid::from_raw(pid.and_then(|pid| i32::try_from(pid).ok()).expect("the number of a process")))
    }

    /// The process that serves the pod's volumes beside its VMM.
    ///
    /// # Panics
    /// When there is not one such process.
    pub async fn share(&mut self, pod: &str) -> Result<Pid, Status> {
        let vmm = self.vmm(pod).await?;
        let children = std::fs::read_to_string(format!("/proc/{vmm}/task/{vmm}/children")).expect("children");
        let children: Vec<i32> = children.split_whitespace().filter_map(|pid| pid.parse().ok()).collect();
        assert_eq!(children.len(), 1, "children of VMM {vmm}: {children:?}");
        Ok(Pid::from_raw(children[0]))
    }

    /// The pod's primary address.
    pub async fn pod_ip(&mut self, pod: &str) -> Result<String, Status> {
        Ok(self.pod_status(pod).await?.network.unwrap_or_default().ip)
    }

    /// ListPodSandbox without a filter.
    pub async fn pods(&mut self) -> Result<Vec<v1::PodSandbox>, Status> {
        Ok(self.runtime.list_pod_sandbox(v1::ListPodSandboxRequest::default()).await?.into_inner().items)
    }

    /// CreateContainer; returns the container's id.
    pub async fn create(&mut self, pod: &str, config: v1::ContainerConfig) -> Result<String, Status> {
        let request = v1::CreateContainerRequest {
            pod_sandbox_id: pod.into(),
            config: Some(config),
            sandbox_config: None,
        };
        Ok(self.runtime.create_container(request).await?.into_inner().container_id)
    }

    /// StartContainer.
    pub async fn start(&mut self, container: &str) -> Result<(), Status> {
        let request = v1::StartContainerRequest { container_id: container.into() };
        self.runtime.start_container(request).await.map(|_| ())
    }

    /// CreateContainer and StartContainer; returns the container's id.
    pub async fn run(&mut self, pod: &str, config: v1::ContainerConfig) -> Result<String, Status> {
        let container = self.create(pod, config).await?;
        self.start(&container).await?;
        Ok(container)
    }

    /// StopContainer.
    pub async fn stop(&mut self, container: &str, grace_seconds: i64) -> Result<(), Status> {
        let request = v1::StopContainerRequest { container_id: container.into(), timeout: grace_seconds };
        self.runtime.stop_container(request).await.map(|_| ())
    }

    /// RemoveContainer.
    pub async fn remove(&mut self, container: &str) -> Result<(), Status> {
        let request = v1::RemoveContainerRequest { container_id: container.into() };
        self.runtime.remove_container(request).await.map(|_| ())
    }

    /// ContainerStatus.
    pub async fn status(&mut self, container: &str) -> Result<v1::ContainerStatus, Status> {
        let request = v1::ContainerStatusRequest { container_id: container.into(), verbose: false };
        Ok(self.runtime.container_status(request).await?.into_inner().status.expect("a status in the answer"))
    }

    /// Waits until the container has ended.
    ///
    /// # Panics
    /// When the container has not ended within twenty minutes.
    pub async fn wait(&mut self, container: &str) -> Result<v1::ContainerStatus, Status> {
        let ended = within(EXIT_TIMEOUT, async || match self.status(container).await {
            Ok(status) if status.state() != v1::ContainerState::ContainerExited => Err(status),
            answer => Ok(answer),
        });
        let seen = ended.await;
        seen.unwrap_or_else(|status| panic!("container {container} has not ended: {status:?}"))
    }

    /// ExecSync, with the client's own deadline well beyond `timeout_seconds`.
    pub async fn exec(
        &mut self,
        container: &str,
        command: &[&str],
        timeout_seconds: i64,
    ) -> Result<v1::ExecSyncResponse, Status> {
        let cmd = command.iter().map(ToString::to_string).collect();
        let mut request = Request::new(v1::ExecSyncRequest {
            container_id: container.into(),
            cmd,
            timeout: timeout_seconds,
        });
        request.set_timeout(EXIT_TIMEOUT);
        Ok(self.runtime.exec_sync(request).await?.into_inner())
    }

    /// Runs a line of shell in the container and returns its output. The line may itself wait for an event.
    pub async fn sh(&mut self, container: &str, line: &str) -> Result<String, Status> {
        let answer = self.exec(container, &["sh", "-c", line], WITHIN.as_secs().cast_signed()).await?;
        Ok(String::from_utf8_lossy(&answer.stdout).into_owned())
    }

    /// Runs a line of shell in the container again and again, until the line prints this.
    ///
    /// # Panics
    /// When the line goes on to print something else.
    pub async fn prints(&mut self, container: &str, line: &str, wanted: &str) -> Result<(), Status> {
        let event = format!("`{line}` to print {wanted:?} in container {container}");
        until_seen(event, async || match self.sh(container, line).await {
            Ok(printed) if printed != wanted => Err(printed),
            answer => Ok(answer.map(drop)),
        })
        .await
    }
}
