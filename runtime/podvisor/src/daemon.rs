//! The daemon as its client commands see it: it serves, is Podvisor, and answers in time. Anything else at
//! the socket has its own error.

use std::collections::{BTreeMap, BTreeSet};
use std::io::ErrorKind;
use std::path::PathBuf;
use std::time::Duration;

use proto_cri::v1;
use runtime_pod::WRITTEN_WITHIN;
use serde::Deserialize;
use tonic::{Code, Response, Status};

use crate::client::{self, Client};
use crate::config::Config;

/// Timeout for one answer. The daemon answers out of memory, and waits a few seconds at most for another
/// runtime or a guest. A hanging daemon must not hang a command.
const ANSWERS_WITHIN: Duration = Duration::from_secs(15);

/// Timeout for the removal of an image. It waits for the disk to remove gigabytes.
const REMOVES_WITHIN: Duration = Duration::from_secs(120);

/// Timeout for the end of a container, beside its own time. A hanging guest is given up after less.
const ENDS_WITHIN: Duration = Duration::from_secs(120);

/// Timeout for the end or the removal of a pod. The daemon lets its VM write its data as long, and plugins of
/// its network hang for up to 150 s.
const POD_ENDS_WITHIN: Duration = WRITTEN_WITHIN.saturating_add(Duration::from_secs(180));

/// Timeout for the start of a pod or a container. The kubelet waits for half as long by default.
const STARTS_WITHIN: Duration = Duration::from_secs(240);

/// The name by which the daemon introduces itself (`runtime/cri`, Version).
const RUNTIME_NAME: &str = "podvisor";

/// A daemon known to be Podvisor.
#[derive(Clone, Debug)]
pub(crate) struct Daemon {
    pub(crate) client: Client,
    socket: PathBuf,
}

/// The reason why the daemon gave no answer.
#[derive(Debug, thiserror::Error)]
pub(crate) enum DaemonError {
    /// Nothing listens, or this user may not connect.
    #[error("no daemon serves on {}: {why}; {}", socket.display(), remedy(*.kind))]
    Down {
        /// The CRI socket.
        socket: PathBuf,
        /// The failure to connect.
        why: String,
        /// Its kind.
        kind: ErrorKind,
    },
    /// A foreign runtime serves.
    #[error(
        "{} is served by {name} {version} and not by podvisor; --config or paths.socket names another socket",
        socket.display()
    )]
    Foreign {
        /// The CRI socket.
        socket: PathBuf,
        /// The runtime's name for itself.
        name: String,
        /// The runtime's version.
        version: String,
    },
    /// The daemon hangs.
    #[error("the daemon on {} did not answer {call} within {} s", socket.display(), limit.as_secs())]
    Late {
        /// The CRI socket.
        socket: PathBuf,
        /// The RPC.
        call: &'static str,
        /// The timeout.
        limit: Duration,
    },
    /// An older daemon.
    #[error(
        "the daemon on {} has no {call} ({message}): it is older than this command, or the runtime behind it is; restart it \
         after an upgrade",
        socket.display()
    )]
    Lacks {
        /// The CRI socket.
        socket: PathBuf,
        /// The RPC.
        call: &'static str,
        /// The daemon's own words.
        message: String,
    },
    /// The daemon refused, or the connection broke.
    #[error("{0}")]
    Refused(String),
}

impl DaemonError {
    /// The transport's own words are around the system's, twice.
    fn down(socket: PathBuf, error: &tonic::transport::Error) -> DaemonError {
        let mut cause: &dyn std::error::Error = error;
        while let Some(deeper) = cause.source() {
            cause = deeper;
        }
        let kind = cause.downcast_ref().map_or(ErrorKind::Other, std::io::Error::kind);
        DaemonError::Down { socket, why: cause.to_string(), kind }
    }
}

fn remedy(kind: ErrorKind) -> &'static str {
    match kind {
        ErrorKind::PermissionDenied => "only root may connect",
        _ => "`systemctl start podvisor` starts it",
    }
}

/// The daemon's words about itself.
#[derive(Clone, Debug, Default)]
pub(crate) struct NodeStatus {
    /// Ids of all pods in VMs. Other listed pods are another runtime's. `None` if the daemon is too old to
    /// report them.
    pub(crate) in_vms: Option<BTreeSet<String>>,
    /// Ids of the pods being started. Empty if the daemon is too old to report them.
    pub(crate) starting: BTreeSet<String>,
    /// Memory of VMs in bytes, by the pod's id.
    pub(crate) vm_memory: BTreeMap<String, u64>,
    /// Ids of the pods whose writes wait for room on the node.
    pub(crate) waiting_for_room: BTreeSet<String>,
    /// Conditions that do not hold.
    pub(crate) wrong: Vec<v1::RuntimeCondition>,
}

/// The part of Status' information used here.
#[derive(Debug, Default, Deserialize)]
struct StatusInfo {
    pods: Option<BTreeSet<String>>,
    #[serde(default)]
    starting: BTreeSet<String>,
    #[serde(default)]
    vms: BTreeMap<String, Vm>,
}

#[derive(Debug, Deserialize)]
struct Vm {
    memory_bytes: u64,
    #[serde(default)]
    full_disks: u32,
}

impl Daemon {
    /// A daemon known to be Podvisor without a question, behind a connection to this socket.
    pub(crate) fn over(client: Client, socket: PathBuf) -> Daemon {
        Daemon { client, socket }
    }

    /// Connects to the configured daemon.
    ///
    /// # Errors
    /// Nothing serves there, or another runtime does, or the daemon does not answer.
    pub(crate) async fn dial(config: &Config) -> Result<Daemon, DaemonError> {
        let socket = config.socket();
        let connected = client::connect(&socket).await;
        let client = connected.map_err(|error| DaemonError::down(socket.clone(), &error))?;
        let daemon = Daemon { client, socket };
        let mut runtime = daemon.client.runtime.clone();
        let version = daemon.ask("Version", runtime.version(v1::VersionRequest::default())).await?;
        if version.runtime_name != RUNTIME_NAME {
            let v1::VersionResponse { runtime_name: name, runtime_version: version, .. } = version;
            return Err(DaemonError::Foreign { socket: daemon.socket, name, version });
        }
        Ok(daemon)
    }

    /// Waits for one answer.
    ///
    /// # Errors
    /// The daemon refuses, has no such call, or does not answer in time.
    pub(crate) async fn ask<T>(
        &self,
        call: &'static str,
        answer: impl Future<Output = Result<Response<T>, Status>>,
    ) -> Result<T, DaemonError> {
        self.ask_within(ANSWERS_WITHIN, call, answer).await
    }

    /// Waits for the answer of a call that starts something.
    ///
    /// # Errors
    /// As [`ask`](Self::ask).
    pub(crate) async fn ask_long<T>(
        &self,
        call: &'static str,
        answer: impl Future<Output = Result<Response<T>, Status>>,
    ) -> Result<T, DaemonError> {
        self.ask_within(STARTS_WITHIN, call, answer).await
    }

    async fn ask_within<T>(
        &self,
        limit: Duration,
        call: &'static str,
        answer: impl Future<Output = Result<Response<T>, Status>>,
    ) -> Result<T, DaemonError> {
        let socket = || self.socket.clone();
        match tokio::time::timeout(limit, answer).await {
            Ok(Ok(answer)) => Ok(answer.into_inner()),
            Ok(Err(status)) if status.code() == Code::Unimplemented => {
                Err(DaemonError::Lacks { socket: socket(), call, message: status.message().to_owned() })
            }
            Ok(Err(status)) => Err(DaemonError::Refused(format!("{call}: {}", status.message()))),
            Err(_) => Err(DaemonError::Late { socket: socket(), call, limit }),
        }
    }

    /// All pods, ended ones too.
    pub(crate) async fn pods(&self) -> Result<Vec<v1::PodSandbox>, DaemonError> {
        let mut runtime = self.client.runtime.clone();
        let request = v1::ListPodSandboxRequest::default();
        Ok(self.ask("ListPodSandbox", runtime.list_pod_sandbox(request)).await?.items)
    }

    /// All containers, ended ones too.
    pub(crate) async fn containers(&self) -> Result<Vec<v1::Container>, DaemonError> {
        let mut runtime = self.client.runtime.clone();
        let request = v1::ListContainersRequest::default();
        Ok(self.ask("ListContainers", runtime.list_containers(request)).await?.containers)
    }

    /// Stops a container: its stop signal, and SIGKILL after this time.
    pub(crate) async fn stop_container(&self, id: &str, seconds: u32) -> Result<(), DaemonError> {
        let mut runtime = self.client.runtime.clone();
        let request = v1::StopContainerRequest { container_id: id.to_owned(), timeout: i64::from(seconds) };
        let limit = ENDS_WITHIN + Duration::from_secs(u64::from(seconds));
        self.ask_within(limit, "StopContainer", runtime.stop_container(request)).await.map(drop)
    }

    /// Ends a pod's containers and its VM.
    pub(crate) async fn stop_pod(&self, id: &str) -> Result<(), DaemonError> {
        let mut runtime = self.client.runtime.clone();
        let request = v1::StopPodSandboxRequest { pod_sandbox_id: id.to_owned() };
        self.ask_within(POD_ENDS_WITHIN, "StopPodSandbox", runtime.stop_pod_sandbox(request)).await.map(drop)
    }

    /// Removes a pod with its containers.
    pub(crate) async fn remove_pod(&self, id: &str) -> Result<(), DaemonError> {
        let mut runtime = self.client.runtime.clone();
        let request = v1::RemovePodSandboxRequest { pod_sandbox_id: id.to_owned() };
        let removing = runtime.remove_pod_sandbox(request);
        self.ask_within(POD_ENDS_WITHIN, "RemovePodSandbox", removing).await.map(drop)
    }

    /// Whether a container has this whole id.
    pub(crate) async fn has_container(&self, id: &str) -> Result<bool, DaemonError> {
        let mut runtime = self.client.runtime.clone();
        let request = v1::ContainerStatusRequest { container_id: id.to_owned(), verbose: false };
        let answer = async {
            match runtime.container_status(request).await {
                Err(status) if status.code() == Code::NotFound => Ok(Response::new(false)),
                answer => answer.map(|_| Response::new(true)),
            }
        };
        self.ask("ContainerStatus", answer).await
    }

    /// A container's status, with all verbose information.
    pub(crate) async fn container_status(
        &self,
        id: &str,
    ) -> Result<v1::ContainerStatusResponse, DaemonError> {
        let mut runtime = self.client.runtime.clone();
        let request = v1::ContainerStatusRequest { container_id: id.to_owned(), verbose: true };
        self.ask("ContainerStatus", runtime.container_status(request)).await
    }

    /// All images.
    pub(crate) async fn images(&self) -> Result<Vec<v1::Image>, DaemonError> {
        let mut images = self.client.images.clone();
        let request = v1::ListImagesRequest::default();
        Ok(self.ask("ListImages", images.list_images(request)).await?.images)
    }

    /// The image of this name or id, with all verbose information. The answer has no image if there is none.
    pub(crate) async fn image_status(&self, name: &str) -> Result<v1::ImageStatusResponse, DaemonError> {
        let mut images = self.client.images.clone();
        let request = v1::ImageStatusRequest { image: image_spec(name), verbose: true };
        self.ask("ImageStatus", images.image_status(request)).await
    }

    /// Removes an image with all its names.
    pub(crate) async fn remove_image(&self, name: &str) -> Result<(), DaemonError> {
        let mut images = self.client.images.clone();
        let request = v1::RemoveImageRequest { image: image_spec(name) };
        self.ask_within(REMOVES_WITHIN, "RemoveImage", images.remove_image(request)).await.map(drop)
    }

    /// The daemon's own status.
    pub(crate) async fn status(&self) -> Result<NodeStatus, DaemonError> {
        let mut runtime = self.client.runtime.clone();
        let answer = self.ask("Status", runtime.status(v1::StatusRequest { verbose: true })).await?;
        Ok(node_status(answer))
    }
}

fn image_spec(name: &str) -> Option<v1::ImageSpec> {
    Some(v1::ImageSpec { image: name.to_owned(), ..Default::default() })
}

fn node_status(answer: v1::StatusResponse) -> NodeStatus {
    let info = answer.info.get("config").map(String::as_str).unwrap_or_default();
    // An older daemon reports less.
    let StatusInfo { pods, starting, vms } = serde_json::from_str(info).unwrap_or_default();
    let conditions = answer.status.unwrap_or_default().conditions;
    let waiting = vms.iter().filter(|(_, vm)| vm.full_disks > 0);
    NodeStatus {
        in_vms: pods,
        starting,
        waiting_for_room: waiting.map(|(id, _)| id.clone()).collect(),
        vm_memory: vms.into_iter().map(|(id, vm)| (id, vm.memory_bytes)).collect(),
        wrong: conditions.into_iter().filter(|condition| !condition.status).collect(),
    }
}

#[cfg(test)]
mod tests {
    use tonic::transport::Endpoint;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_daemon_that_hangs_is_given_up_with_the_calls_name() {
        let channel = Endpoint::from_static("http://localhost").connect_lazy();
        let client = Client::of(channel);
        let daemon = Daemon { client, socket: "/run/x.sock".into() };
        let late = daemon.ask::<()>("ListContainers", std::future::pending()).await.unwrap_err();
        assert_eq!(late.to_string(), "the daemon on /run/x.sock did not answer ListContainers within 15 s");
    }

    #[tokio::test]
    async fn a_daemon_that_is_down_has_the_systems_own_words_and_a_remedy() {
        let mut config = Config::default();
        config.paths.socket = Some("/none/x.sock".into());
        let down = Daemon::dial(&config).await.unwrap_err().to_string();
        let words = "no daemon serves on /none/x.sock: No such file or directory (os error 2); ";
        assert_eq!(down, format!("{words}`systemctl start podvisor` starts it"));
        assert_eq!(remedy(ErrorKind::PermissionDenied), "only root may connect");
    }

    #[test]
    fn an_older_daemon_that_says_less_of_itself_is_no_error() {
        let of = |info: &str| {
            let info = [("config".to_owned(), info.to_owned())].into();
            node_status(v1::StatusResponse { info, ..Default::default() })
        };
        let status = of(r#"{"pods":["a"],"vms":{"a":{"memory_bytes":7,"vcpus":1}},"later":[]}"#);
        assert_eq!((status.in_vms.unwrap().len(), status.vm_memory["a"]), (1, 7));
        assert!(status.waiting_for_room.is_empty() && status.starting.is_empty());
        assert_eq!(of(r#"{"pods":["a","b"],"starting":["b"]}"#).starting, ["b".to_owned()].into());
        let full = of(r#"{"pods":["a"],"vms":{"a":{"memory_bytes":7,"full_disks":2}}}"#);
        assert_eq!(full.waiting_for_room, ["a".to_owned()].into());
        assert!(of(r#"{"pods":["a"]}"#).vm_memory.is_empty());
        for older in ["{}", "", "no JSON", r#"{"pods":7}"#] {
            assert!(of(older).in_vms.is_none(), "{older}");
        }
    }
}
