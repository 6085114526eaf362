//! The real agent, over its client. Each call is passed on as it is.

use std::io;
use std::path::Path;
use std::sync::Arc;

use async_trait::async_trait;
use proto_agent::agent::{
    ConfigurePodRequest, CreateContainerRequest, CreateContainerResponse, ExecRequest,
    RemoveContainerRequest, ResizePodRequest, SignalRequest, StartContainerRequest, StatsResponse,
    StreamKind, UpdateContainerRequest, UsageResponse, WaitRequest, WaitResponse,
};
use runtime_guest::{Acknowledger, FailureReason, Guest, GuestError, InputStream, RefusedCode};
use runtime_pieces::Pieces;
use runtime_vm::VmError;
use tokio::net::UnixStream;

use super::{Acknowledge, Agent, Connection, Fault, Input, Output};
use crate::PodErrorKind;

/// What sort of failure it is that the other side understood and said no to: asking again, or
/// elsewhere, would not help. `None` where it did not answer at all.
pub(crate) fn refusal(fault: &Fault) -> Option<PodErrorKind> {
    if matches!(fault.downcast_ref::<VmError>(), Some(VmError::Refused { .. })) {
        return Some(PodErrorKind::Internal);
    }
    Some(match fault.downcast_ref::<GuestError>()?.refused()? {
        // An executable that the image does not have, or may not run: the spec asks for what is not there.
        RefusedCode::NotFound | RefusedCode::PermissionDenied | RefusedCode::InvalidArgument => {
            PodErrorKind::InvalidArgument
        }
        RefusedCode::FailedPrecondition => PodErrorKind::FailedPrecondition,
        RefusedCode::AlreadyExists | RefusedCode::ResourceExhausted | RefusedCode::Other => {
            PodErrorKind::Internal
        }
    })
}

/// Why the guest's kernel does not run a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unrunnable {
    /// The image does not have it.
    NotFound,
    /// It may not be executed, or is none.
    NotPermitted,
}

/// Whether the agent refused to start a program for itself.
pub(crate) fn unrunnable(fault: &(dyn std::error::Error + Send + Sync + 'static)) -> Option<Unrunnable> {
    match fault.downcast_ref::<GuestError>()?.reason()? {
        FailureReason::ExecutableNotFound => Some(Unrunnable::NotFound),
        FailureReason::ExecutableNotRunnable => Some(Unrunnable::NotPermitted),
        FailureReason::ImageVolumeMount => None,
    }
}

/// The agent's message where it refused to mount an image volume.
pub(crate) fn volume_refusal<'a>(
    fault: &'a (dyn std::error::Error + Send + Sync + 'static),
) -> Option<&'a str> {
    match fault.downcast_ref::<GuestError>()? {
        GuestError::Refused { message, reason: Some(FailureReason::ImageVolumeMount), .. } => Some(message),
        _ => None,
    }
}

/// Reads the agent's first word.
pub(super) async fn ready(stream: UnixStream) -> Result<(), Fault> {
    let ready = runtime_guest::ready(stream).await?;
    tracing::debug!(kernel = ready.kernel_release, agent = ready.agent_version, "a guest is up");
    Ok(())
}

/// Connects to the agent behind a VMM's vsock socket.
pub(super) async fn connect(vsock_path: &Path) -> Result<Arc<dyn Agent>, Fault> {
    Ok(Arc::new(GuestAgent(Guest::connect(vsock_path).await?)))
}

#[derive(Debug)]
struct GuestAgent(Guest);

#[async_trait]
impl Agent for GuestAgent {
    async fn configure_pod(&self, request: ConfigurePodRequest) -> Result<(), Fault> {
        Ok(self.0.configure_pod(&request).await?)
    }

    async fn create_container(
        &self,
        request: CreateContainerRequest,
    ) -> Result<CreateContainerResponse, Fault> {
        Ok(self.0.create_container(&request).await?)
    }

    async fn start_container(&self, container_id: &str) -> Result<(), Fault> {
        let request = StartContainerRequest {
            container_id: container_id.to_owned(),
            ..StartContainerRequest::default()
        };
        Ok(self.0.start_container(&request).await?)
    }

    async fn update_container(&self, request: UpdateContainerRequest) -> Result<(), Fault> {
        Ok(self.0.update_container(&request).await?)
    }

    async fn resize_pod(&self, request: ResizePodRequest) -> Result<(), Fault> {
        Ok(self.0.resize_pod(&request).await?)
    }

    async fn remove_container(&self, container_id: &str) -> Result<(), Fault> {
        let request = RemoveContainerRequest {
            container_id: container_id.to_owned(),
            ..RemoveContainerRequest::default()
        };
        Ok(self.0.remove_container(&request).await?)
    }

    async fn exec(&self, request: ExecRequest) -> Result<(), Fault> {
        Ok(self.0.exec(&request).await?)
    }

    async fn wait(&self, container_id: &str, exec_id: &str) -> Result<WaitResponse, Fault> {
        let request = WaitRequest {
            container_id: container_id.to_owned(),
            exec_id: exec_id.to_owned(),
            ..WaitRequest::default()
        };
        Ok(self.0.wait(&request).await?)
    }

    async fn signal(&self, request: SignalRequest) -> Result<(), Fault> {
        Ok(self.0.signal(&request).await?)
    }

    async fn stats(&self) -> Result<StatsResponse, Fault> {
        Ok(self.0.stats().await?)
    }

    async fn usage(&self) -> Result<UsageResponse, Fault> {
        Ok(self.0.usage().await?)
    }

    async fn shutdown(&self) -> Result<(), Fault> {
        Ok(self.0.shutdown().await?)
    }

    async fn output(&self, container_id: &str, kind: StreamKind, offset: u64) -> Result<Output, Fault> {
        let (reader, acknowledger) = self.0.output(container_id, kind, offset).await?.into_split();
        Ok(Output { reader: Box::new(reader), acknowledge: Box::new(acknowledger) })
    }

    async fn exec_output(
        &self,
        container_id: &str,
        exec_id: &str,
        kind: StreamKind,
    ) -> Result<Pieces, Fault> {
        Ok(self.0.exec_output(container_id, exec_id, kind).await?.into())
    }

    async fn input(&self, container_id: &str, exec_id: &str) -> Result<Box<dyn Input>, Fault> {
        Ok(Box::new(self.0.input(container_id, exec_id).await?))
    }

    async fn port(&self, port: u16) -> Result<Box<dyn Connection>, Fault> {
        Ok(Box::new(self.0.port(port).await?))
    }
}

#[async_trait]
impl Input for InputStream {
    // The type's own methods, which come before the trait's.
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
        // The type's own method, which comes before the trait's.
        Acknowledger::acknowledge(self, total).await
    }
}
