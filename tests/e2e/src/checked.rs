//! The rules of the kubelet's client for answers (cri-client `utils.go` and `remote_*.go`), applied to every
//! answer in every test; and rules of the API assumed by the client. If an answer breaks one, the test fails.
//!
//! [`Runtime`] and [`Images`] are the generated clients with these calls checked; all others go through.

use std::ops::{Deref, DerefMut};

use proto_cri::v1::image_service_client::ImageServiceClient;
use proto_cri::v1::runtime_service_client::RuntimeServiceClient;
use proto_cri::v1::*;
use tonic::transport::Channel;
use tonic::{IntoRequest, Response, Status};

/// The RuntimeService's client.
#[derive(Clone, Debug)]
pub struct Runtime(pub(crate) RuntimeServiceClient<Channel>);

/// The ImageService's client.
#[derive(Clone, Debug)]
pub struct Images(pub(crate) ImageServiceClient<Channel>);

impl Deref for Runtime {
    type Target = RuntimeServiceClient<Channel>;
    fn deref(&self) -> &Self::Target {
        &self.0
    }
}

impl DerefMut for Runtime {
    fn deref_mut(&mut self) -> &mut Self::Target {
        &mut self.0
    }
}

impl Deref for Images {
    type Target = ImageServiceClient<Channel>;
    fn deref(&self) -> &Self::Target {
        &self.0
    }
}

impl DerefMut for Images {
    fn deref_mut(&mut self) -> &mut Self::Target {
        &mut self.0
    }
}

/// An answer with rules.
trait Answer: std::fmt::Debug {
    /// The first broken rule of the answer.
    fn broken(&self) -> Option<&'static str>;
}

macro_rules! checked {
    ($client:ident: $($call:ident($request:ty) -> $answer:ty;)*) => {
        impl $client {
            $(
                #[doc = concat!("`", stringify!($call), "`, checked.")]
                ///
                /// # Errors
                /// The server's error.
                ///
                /// # Panics
                /// When the answer breaks a rule.
                pub async fn $call(
                    &mut self,
                    request: impl IntoRequest<$request>,
                ) -> Result<Response<$answer>, Status> {
                    let answer = self.0.$call(request).await?;
                    let broken = answer.get_ref().broken();
                    assert_eq!(broken, None, "{}: {:?}", stringify!($call), answer.get_ref());
                    Ok(answer)
                }
            )*
        }
    };
}

checked! { Runtime:
    version(VersionRequest) -> VersionResponse;
    status(StatusRequest) -> StatusResponse;
    run_pod_sandbox(RunPodSandboxRequest) -> RunPodSandboxResponse;
    pod_sandbox_status(PodSandboxStatusRequest) -> PodSandboxStatusResponse;
    list_pod_sandbox(ListPodSandboxRequest) -> ListPodSandboxResponse;
    create_container(CreateContainerRequest) -> CreateContainerResponse;
    container_status(ContainerStatusRequest) -> ContainerStatusResponse;
    list_containers(ListContainersRequest) -> ListContainersResponse;
    exec(ExecRequest) -> ExecResponse;
    attach(AttachRequest) -> AttachResponse;
    port_forward(PortForwardRequest) -> PortForwardResponse;
    runtime_config(RuntimeConfigRequest) -> RuntimeConfigResponse;
}

checked! { Images:
    list_images(ListImagesRequest) -> ListImagesResponse;
    image_status(ImageStatusRequest) -> ImageStatusResponse;
    pull_image(PullImageRequest) -> PullImageResponse;
    image_fs_info(ImageFsInfoRequest) -> ImageFsInfoResponse;
}

/// The first broken rule.
fn first_broken(rules: &[(bool, &'static str)]) -> Option<&'static str> {
    rules.iter().find(|(holds, _)| !holds).map(|(_, rule)| *rule)
}

impl Answer for VersionResponse {
    fn broken(&self) -> Option<&'static str> {
        first_broken(&[
            (!self.version.is_empty(), "version is set"),
            (!self.runtime_name.is_empty(), "runtime_name is set"),
            (!self.runtime_version.is_empty(), "runtime_version is set"),
            (!self.runtime_api_version.is_empty(), "runtime_api_version is set"),
        ])
    }
}

impl Answer for StatusResponse {
    fn broken(&self) -> Option<&'static str> {
        let conditions = self.status.as_ref().map(|status| &status.conditions[..]).unwrap_or_default();
        let has = |name: &str| conditions.iter().any(|condition| condition.r#type == name);
        first_broken(&[
            (has("RuntimeReady"), "RuntimeReady is among the conditions"),
            (has("NetworkReady"), "NetworkReady is among the conditions"),
            (self.features.is_some(), "features are reported"),
            (
                self.runtime_handlers.iter().all(|handler| handler.features.is_some()),
                "handlers have features",
            ),
        ])
    }
}

impl Answer for RunPodSandboxResponse {
    fn broken(&self) -> Option<&'static str> {
        first_broken(&[(!self.pod_sandbox_id.is_empty(), "pod_sandbox_id is set")])
    }
}

impl Answer for PodSandboxStatusResponse {
    fn broken(&self) -> Option<&'static str> {
        let Some(status) = &self.status else { return Some("there is a status") };
        let metadata = status.metadata.clone().unwrap_or_default();
        let options = status.linux.as_ref().and_then(|linux| linux.namespaces.as_ref()?.options.as_ref());
        let ready = status.state() == PodSandboxState::SandboxReady;
        let ip = status.network.as_ref().map(|network| network.ip.as_str()).unwrap_or_default();
        first_broken(&[
            (!status.id.is_empty(), "id is set"),
            (!metadata.name.is_empty(), "metadata.name is set"),
            (!metadata.namespace.is_empty(), "metadata.namespace is set"),
            (!metadata.uid.is_empty(), "metadata.uid is set"),
            (status.created_at > 0, "created_at is set"),
            (options.is_some(), "the namespaces' modes are reported"),
            (!ready || !ip.is_empty(), "a ready pod has an address"),
            (self.timestamp >= status.created_at, "timestamp is set"),
            (
                self.containers_statuses.iter().all(|one| container(one).is_none()),
                "its containers' statuses hold",
            ),
        ])
    }
}

impl Answer for ListPodSandboxResponse {
    fn broken(&self) -> Option<&'static str> {
        let holds = |pod: &PodSandbox| !pod.id.is_empty() && pod.metadata.is_some() && pod.created_at > 0;
        first_broken(&[(self.items.iter().all(holds), "each pod has id, metadata and created_at")])
    }
}

impl Answer for CreateContainerResponse {
    fn broken(&self) -> Option<&'static str> {
        first_broken(&[(!self.container_id.is_empty(), "container_id is set")])
    }
}

impl Answer for ContainerStatusResponse {
    fn broken(&self) -> Option<&'static str> {
        self.status.as_ref().map_or(Some("there is a status"), container)
    }
}

/// The rules of a container's status.
fn container(status: &ContainerStatus) -> Option<&'static str> {
    let name = status.metadata.as_ref().map(|metadata| metadata.name.as_str()).unwrap_or_default();
    let image = status.image.as_ref().map(|image| image.image.as_str()).unwrap_or_default();
    let (started, ended) = match status.state() {
        ContainerState::ContainerCreated => (false, false),
        ContainerState::ContainerRunning => (true, false),
        // A container after a failed start never started.
        ContainerState::ContainerExited => (status.started_at > 0, true),
        ContainerState::ContainerUnknown => (status.started_at > 0, status.finished_at > 0),
    };
    first_broken(&[
        (!status.id.is_empty(), "id is set"),
        (!name.is_empty(), "metadata.name is set"),
        (status.created_at > 0, "created_at is set"),
        (!image.is_empty(), "image.image is set"),
        (status.image_id.starts_with("sha256:"), "image_id is the image's id"),
        // A reference by digest, or the id if the image has none.
        (status.image_ref.contains("sha256:"), "image_ref names a digest"),
        (status.log_path.starts_with('/'), "log_path is absolute"),
        (started == (status.started_at > 0), "started_at is set once it runs"),
        (!started || status.started_at >= status.created_at, "it started after it was created"),
        (ended == (status.finished_at > 0), "finished_at is set once it has ended"),
        (
            !ended || status.finished_at >= status.started_at.max(status.created_at),
            "it ended after it started",
        ),
        (ended != status.reason.is_empty(), "reason is set once it has ended"),
        (status.user.is_some(), "user is reported"),
        (status.stop_signal() != Signal::RuntimeDefault, "stop_signal is the one in force"),
    ])
}

impl Answer for ListContainersResponse {
    fn broken(&self) -> Option<&'static str> {
        let all = |holds: fn(&Container) -> bool| self.containers.iter().all(holds);
        first_broken(&[
            (all(|one| !one.id.is_empty() && !one.pod_sandbox_id.is_empty()), "each container has its ids"),
            (all(|one| one.metadata.is_some() && one.image.is_some()), "each has metadata and image"),
            (all(|one| !one.image_id.is_empty() && one.image_ref == one.image_id), "image_id is image_ref"),
        ])
    }
}

impl Answer for ExecResponse {
    fn broken(&self) -> Option<&'static str> {
        first_broken(&[(!self.url.is_empty(), "url is set")])
    }
}

impl Answer for AttachResponse {
    fn broken(&self) -> Option<&'static str> {
        first_broken(&[(!self.url.is_empty(), "url is set")])
    }
}

impl Answer for PortForwardResponse {
    fn broken(&self) -> Option<&'static str> {
        first_broken(&[(!self.url.is_empty(), "url is set")])
    }
}

impl Answer for RuntimeConfigResponse {
    fn broken(&self) -> Option<&'static str> {
        first_broken(&[(self.linux.is_some(), "linux is set, since without it systemd is meant")])
    }
}

/// The rules of an image.
fn image_holds(image: &Image) -> bool {
    !image.id.is_empty() && image.size > 0
}

impl Answer for ListImagesResponse {
    fn broken(&self) -> Option<&'static str> {
        first_broken(&[(self.images.iter().all(image_holds), "each image has id and size")])
    }
}

impl Answer for ImageStatusResponse {
    fn broken(&self) -> Option<&'static str> {
        first_broken(&[(self.image.as_ref().is_none_or(image_holds), "the image has id and size")])
    }
}

impl Answer for PullImageResponse {
    fn broken(&self) -> Option<&'static str> {
        first_broken(&[(!self.image_ref.is_empty(), "image_ref is set")])
    }
}

impl Answer for ImageFsInfoResponse {
    fn broken(&self) -> Option<&'static str> {
        let mounted = |usage: &FilesystemUsage| {
            usage.timestamp > 0 && usage.fs_id.as_ref().is_some_and(|id| id.mountpoint.starts_with('/'))
        };
        first_broken(&[
            (!self.image_filesystems.is_empty(), "there is a file system of images"),
            (self.image_filesystems.iter().all(mounted), "each says when and where"),
            (self.container_filesystems.iter().all(mounted), "each says when and where"),
        ])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ended() -> ContainerStatus {
        ContainerStatus {
            id: "c1".into(),
            metadata: Some(ContainerMetadata { name: "main".into(), attempt: 0 }),
            state: ContainerState::ContainerExited.into(),
            created_at: 1,
            started_at: 2,
            finished_at: 3,
            image: Some(ImageSpec { image: "sha256:aa".into(), ..Default::default() }),
            image_ref: "sha256:aa".into(),
            image_id: "sha256:aa".into(),
            reason: "Completed".into(),
            log_path: "/logs/c1".into(),
            user: Some(ContainerUser::default()),
            stop_signal: Signal::Sigterm.into(),
            ..Default::default()
        }
    }

    #[test]
    fn a_status_that_breaks_a_rule_is_reported_by_the_rule() {
        assert_eq!(container(&ended()), None);
        for (status, rule) in [
            (ContainerStatus { log_path: String::new(), ..ended() }, "log_path"),
            (ContainerStatus { log_path: "c1.log".into(), ..ended() }, "log_path"),
            (ContainerStatus { image_id: "busybox".into(), ..ended() }, "image_id"),
            (ContainerStatus { finished_at: 1, ..ended() }, "it ended after"),
            (ContainerStatus { reason: String::new(), ..ended() }, "reason"),
            (ContainerStatus { image: None, ..ended() }, "image.image"),
        ] {
            assert!(container(&status).unwrap().contains(rule), "{status:?}");
        }
        assert!(VersionResponse::default().broken().is_some());
        assert!(StatusResponse::default().broken().is_some());
    }
}
