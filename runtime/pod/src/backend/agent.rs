//! Pods' agents, over their client.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use proto_agent::agent::{ConfigurePodRequest, PreparePodRequest, StatsResponse, StreamKind, UsageResponse};
use runtime_guest::{
    Acknowledger, FailureReason, Guest, GuestError, InputStream, ProcessExit, PublishedVersion, RefusedCode,
    ReplayedSettings, SignalTarget,
};
use runtime_pieces::Pieces;
use runtime_spec::{ContainerPlan, ContainerSlots, ExecPlan, Signal, User, VolumeLimits};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::UnixStream;

use super::error::{BackendError, BackendErrorKind};

/// One pod's agent. Every call but `wait` has a deadline of its own.
#[async_trait]
pub(crate) trait Agent: Debug + Send + Sync {
    /// Applies the part of the configuration common to all pods.
    async fn prepare_pod(&self, request: PreparePodRequest) -> Result<(), BackendError>;
    /// Configures the guest, and returns the outcome of its network settings.
    async fn configure_pod(&self, request: ConfigurePodRequest) -> Result<ReplayedSettings, BackendError>;
    /// Creates a container from the devices in `slots`, and returns its user.
    async fn create_container(
        &self,
        plan: &ContainerPlan,
        slots: &ContainerSlots,
    ) -> Result<User, BackendError>;
    /// Mounts the container's sockets of the node over their recreated files.
    async fn attach_host_sockets(&self, container_id: &str) -> Result<(), BackendError>;
    async fn start_container(&self, container_id: &str) -> Result<(), BackendError>;
    /// Writes files of the container's cgroup, all of them or none.
    async fn update_container(
        &self,
        container_id: &str,
        cgroup_files: BTreeMap<String, String>,
    ) -> Result<(), BackendError>;
    /// Brings processors up, and binds the memory device if the VM has one in a slot.
    async fn resize_pod(&self, vcpus: u8, memory_slot: Option<u8>) -> Result<(), BackendError>;
    /// Sends a version of a published volume. The guest then has all of it or nothing.
    async fn publish_volume(&self, version: &PublishedVersion) -> Result<(), BackendError>;
    /// Gives a memory volume other bounds.
    async fn resize_volume(&self, volume: &str, limits: VolumeLimits) -> Result<(), BackendError>;
    /// Kills, unmounts and forgets a container; unknown ids are no error.
    async fn remove_container(&self, container_id: &str) -> Result<(), BackendError>;
    /// Starts a command. Its program does not begin later than `within` after the agent has the call.
    async fn exec(
        &self,
        container_id: &str,
        exec_id: &str,
        plan: &ExecPlan,
        within: Option<Duration>,
    ) -> Result<(), BackendError>;
    /// Waits for a process's end. An empty exec id names the container's first process.
    async fn wait(&self, container_id: &str, exec_id: &str) -> Result<ProcessExit, BackendError>;
    /// Sends a signal. Returns the guest's processes not yet ended by a SIGKILL.
    async fn signal(
        &self,
        container_id: &str,
        target: SignalTarget<'_>,
        signal: Signal,
    ) -> Result<Vec<u32>, BackendError>;
    async fn stats(&self) -> Result<StatsResponse, BackendError>;
    async fn usage(&self) -> Result<UsageResponse, BackendError>;
    /// Has the guest give back memory of cached files, and returns how many bytes.
    async fn reclaim(&self) -> Result<u64, BackendError>;
    /// Kills all containers and syncs the disk.
    async fn shutdown(&self) -> Result<(), BackendError>;
    /// Opens an output of a container's first process, from this byte on.
    async fn output(&self, container_id: &str, kind: StreamKind, offset: u64)
    -> Result<Output, BackendError>;
    /// Opens an output of a command. Dropping it before its end hangs up on the command.
    async fn exec_output(
        &self,
        container_id: &str,
        exec_id: &str,
        kind: StreamKind,
    ) -> Result<Pieces, BackendError>;
    /// Opens the way to a process's stdin or terminal.
    async fn input(&self, container_id: &str, exec_id: &str) -> Result<Box<dyn Input>, BackendError>;
    /// Connects to a TCP port of the pod's loopback.
    async fn port(&self, port: u16) -> Result<Box<dyn Connection>, BackendError>;
}

/// Releases of a guest's parts, as its agent says them.
#[derive(Clone, Debug, Default)]
pub(crate) struct GuestReleases {
    pub(crate) kernel: String,
    pub(crate) agent: String,
    /// The newest protocol known to the agent.
    pub(crate) protocol: u32,
}

/// An input stream of a process. Dropping it leaves the input open.
#[async_trait]
pub(crate) trait Input: Debug + Send {
    async fn write(&mut self, bytes: &[u8]) -> io::Result<()>;
    async fn resize(&mut self, columns: u16, rows: u16) -> io::Result<()>;
    /// The process's end of file.
    async fn end(&mut self) -> io::Result<()>;
}

/// Bytes both ways.
pub(crate) trait Connection: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Connection for T {}

/// An output stream of a container's first process.
pub(crate) struct Output {
    pub(crate) reader: Box<dyn AsyncRead + Send + Unpin>,
    pub(crate) acknowledge: Box<dyn Acknowledge>,
}

impl Debug for Output {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Output").finish_non_exhaustive()
    }
}

/// Lets the agent discard bytes already kept by the host.
#[async_trait]
pub(crate) trait Acknowledge: Send {
    /// `total` bytes of the stream, counted from its very beginning, are kept on the host.
    async fn acknowledge(&mut self, total: u64) -> io::Result<()>;
}

/// Reads the agent's first message.
pub(super) async fn ready(stream: UnixStream) -> Result<GuestReleases, BackendError> {
    let ready = runtime_guest::ready(stream).await?;
    tracing::debug!(kernel = ready.kernel_release, agent = ready.agent_version, "a guest is up");
    let protocol = ready.protocol_newest;
    Ok(GuestReleases { kernel: ready.kernel_release, agent: ready.agent_version, protocol })
}

/// Reads the first message of an agent about to be saved, and waits until the agent has closed the stream. So
/// no clone resumes in the middle of an unread message.
pub(super) async fn waits(stream: UnixStream) -> Result<(), BackendError> {
    Ok(runtime_guest::ready_and_done(stream).await?)
}

/// Wakes the agent of a restored guest. The seed is generated here, for this guest alone.
pub(super) async fn wake(vsock_path: &Path) -> Result<(), BackendError> {
    Ok(runtime_guest::wake(vsock_path, &rand::random::<[u8; 64]>()).await?)
}

/// Connects to the agent behind a VMM's vsock socket.
pub(super) async fn connect(vsock_path: &Path) -> Result<Arc<dyn Agent>, BackendError> {
    Ok(Arc::new(GuestAgent(Guest::connect(vsock_path).await?)))
}

/// Connects to an agent configured by an earlier daemon.
pub(super) async fn reconnect(vsock_path: &Path) -> Result<Arc<dyn Agent>, BackendError> {
    Ok(Arc::new(GuestAgent(Guest::reconnect(vsock_path).await?)))
}

#[derive(Debug)]
struct GuestAgent(Guest);

#[async_trait]
impl Agent for GuestAgent {
    async fn prepare_pod(&self, request: PreparePodRequest) -> Result<(), BackendError> {
        Ok(self.0.prepare_pod(request).await?)
    }

    async fn configure_pod(&self, request: ConfigurePodRequest) -> Result<ReplayedSettings, BackendError> {
        Ok(self.0.configure_pod(request).await?)
    }

    async fn create_container(
        &self,
        plan: &ContainerPlan,
        slots: &ContainerSlots,
    ) -> Result<User, BackendError> {
        Ok(self.0.create_container(plan, slots).await?)
    }

    async fn attach_host_sockets(&self, container_id: &str) -> Result<(), BackendError> {
        Ok(self.0.attach_host_sockets(container_id).await?)
    }

    async fn start_container(&self, container_id: &str) -> Result<(), BackendError> {
        Ok(self.0.start_container(container_id).await?)
    }

    async fn update_container(
        &self,
        container_id: &str,
        cgroup_files: BTreeMap<String, String>,
    ) -> Result<(), BackendError> {
        Ok(self.0.update_container(container_id, cgroup_files).await?)
    }

    async fn resize_pod(&self, vcpus: u8, memory_slot: Option<u8>) -> Result<(), BackendError> {
        Ok(self.0.resize_pod(vcpus, memory_slot).await?)
    }

    async fn publish_volume(&self, version: &PublishedVersion) -> Result<(), BackendError> {
        Ok(self.0.publish_volume(version).await?)
    }

    async fn resize_volume(&self, volume: &str, limits: VolumeLimits) -> Result<(), BackendError> {
        Ok(self.0.resize_volume(volume, limits).await?)
    }

    async fn remove_container(&self, container_id: &str) -> Result<(), BackendError> {
        Ok(self.0.remove_container(container_id).await?)
    }

    async fn exec(
        &self,
        container_id: &str,
        exec_id: &str,
        plan: &ExecPlan,
        within: Option<Duration>,
    ) -> Result<(), BackendError> {
        Ok(self.0.exec(container_id, exec_id, plan, within).await?)
    }

    async fn wait(&self, container_id: &str, exec_id: &str) -> Result<ProcessExit, BackendError> {
        Ok(self.0.wait(container_id, exec_id).await?)
    }

    async fn signal(
        &self,
        container_id: &str,
        target: SignalTarget<'_>,
        signal: Signal,
    ) -> Result<Vec<u32>, BackendError> {
        Ok(self.0.signal(container_id, target, signal).await?)
    }

    async fn stats(&self) -> Result<StatsResponse, BackendError> {
        Ok(self.0.stats().await?)
    }

    async fn usage(&self) -> Result<UsageResponse, BackendError> {
        Ok(self.0.usage().await?)
    }

    async fn reclaim(&self) -> Result<u64, BackendError> {
        Ok(self.0.reclaim().await?)
    }

    async fn shutdown(&self) -> Result<(), BackendError> {
        Ok(self.0.shutdown().await?)
    }

    async fn output(
        &self,
        container_id: &str,
        kind: StreamKind,
        offset: u64,
    ) -> Result<Output, BackendError> {
        let (reader, acknowledger) = self.0.output(container_id, kind, offset).await?.into_split();
        Ok(Output { reader: Box::new(reader), acknowledge: Box::new(acknowledger) })
    }

    async fn exec_output(
        &self,
        container_id: &str,
        exec_id: &str,
        kind: StreamKind,
    ) -> Result<Pieces, BackendError> {
        Ok(self.0.exec_output(container_id, exec_id, kind).await?.into())
    }

    async fn input(&self, container_id: &str, exec_id: &str) -> Result<Box<dyn Input>, BackendError> {
        Ok(Box::new(self.0.input(container_id, exec_id).await?))
    }

    async fn port(&self, port: u16) -> Result<Box<dyn Connection>, BackendError> {
        Ok(Box::new(self.0.port(port).await?))
    }
}

#[async_trait]
impl Input for InputStream {
    // The type's own methods. They take precedence over the trait's.
    async fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        InputStream::write(self, bytes).await
    }

    async fn resize(&mut self, columns: u16, rows: u16) -> io::Result<()> {
        InputStream::resize(self, columns, rows).await
    }

    async fn end(&mut self) -> io::Result<()> {
        InputStream::end(self).await
    }
}

#[async_trait]
impl Acknowledge for Acknowledger {
    async fn acknowledge(&mut self, total: u64) -> io::Result<()> {
        // The type's own method. It takes precedence over the trait's.
        Acknowledger::acknowledge(self, total).await
    }
}

impl From<GuestError> for BackendError {
    fn from(error: GuestError) -> Self {
        let kind = match error.refused() {
            None => BackendErrorKind::Unreachable,
            // The image has no such executable, or it may not be run: the spec is wrong.
            Some(RefusedCode::NotFound | RefusedCode::PermissionDenied | RefusedCode::InvalidArgument) => {
                BackendErrorKind::Invalid
            }
            Some(RefusedCode::FailedPrecondition) => BackendErrorKind::Precondition,
            Some(RefusedCode::AlreadyExists | RefusedCode::ResourceExhausted | RefusedCode::Other) => {
                BackendErrorKind::Guest
            }
        };
        match error {
            // The kubelet expects the bare message behind its own name of this failure.
            GuestError::Refused {
                reason: reason @ Some(FailureReason::ImageVolumeMount), message, ..
            } => BackendError::new(BackendErrorKind::Invalid, message).with_reason(reason),
            error => {
                let reason = error.reason();
                BackendError::new(kind, error).with_reason(reason)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use runtime_spans::GuestText;

    use super::*;
    use crate::error::PodErrorKind;

    #[test]
    fn a_guest_that_could_not_do_it_is_no_failure_of_the_node() {
        let kind = |code| {
            let message = GuestText("cannot mount /etc/x: not a directory".into());
            let refused = GuestError::Refused { method: "create", message, code, reason: None };
            BackendError::from(refused).during("creating the container").kind()
        };
        for code in [RefusedCode::Other, RefusedCode::AlreadyExists, RefusedCode::ResourceExhausted] {
            assert_eq!(kind(code), PodErrorKind::Guest, "{code:?}");
        }
        assert_eq!(kind(RefusedCode::InvalidArgument), PodErrorKind::InvalidArgument);
        let gone = GuestError::Deadline { method: "create" };
        assert_eq!(BackendError::from(gone).during("").kind(), PodErrorKind::Unavailable);
    }
}
