//! The agent's RPCs, one file per group. Each only checks the barrier, forwards, and turns errors into
//! status codes; the contract is `agent.proto`.
//!
//! What changes something runs in a task of its own: a daemon that goes away in the middle does not
//! stop it halfway.

mod configure;
mod container;
mod process;
mod resize;
mod stats;
mod usage;

use std::future::Future;
use std::sync::Arc;

use agent_container::launch::FailureKind;
use async_trait::async_trait;
use proto_agent::agent::{
    ConfigurePodRequest, ConfigurePodResponse, CreateContainerRequest, CreateContainerResponse, Empty,
    ExecRequest, ExecResponse, FailureReason, RemoveContainerRequest, ResizePodRequest, ShutdownRequest,
    SignalRequest, StartContainerRequest, StatsRequest, StatsResponse, UpdateContainerRequest, UsageRequest,
    UsageResponse, WaitRequest, WaitResponse,
};
use proto_agent::agent_ttrpc::Agent;
use proto_agent::failure;
use ttrpc::Code;
use ttrpc::r#async::TtrpcContext;

use crate::containers::{ContainerError, VolumeError};
use crate::pod::Pod;

/// Serves one pod.
#[derive(Clone, Debug)]
pub(crate) struct Service {
    pub(crate) pod: Arc<Pod>,
}

impl Service {
    /// The pod, if it is configured.
    async fn pod(&self) -> ttrpc::Result<&Arc<Pod>> {
        if *self.pod.configured.lock().await {
            return Ok(&self.pod);
        }
        Err(refusal(Code::FAILED_PRECONDITION, "the pod is not configured yet"))
    }

    /// Runs `work` to its end, whatever becomes of the caller.
    async fn run<T, F>(&self, work: impl FnOnce(Arc<Pod>) -> F) -> ttrpc::Result<T>
    where
        T: Send + 'static,
        F: Future<Output = Result<T, ContainerError>> + Send + 'static,
    {
        let pod = Arc::clone(self.pod().await?);
        match tokio::spawn(work(pod)).await {
            Ok(result) => result.map_err(|error| refused(&error)),
            Err(_) => Err(refusal(Code::INTERNAL, "the request's task has died")),
        }
    }
}

#[async_trait]
impl Agent for Service {
    async fn configure_pod(
        &self,
        _: &TtrpcContext,
        request: ConfigurePodRequest,
    ) -> ttrpc::Result<ConfigurePodResponse> {
        configure::pod(self, request).await
    }

    async fn create_container(
        &self,
        _: &TtrpcContext,
        request: CreateContainerRequest,
    ) -> ttrpc::Result<CreateContainerResponse> {
        container::create(self, request).await
    }

    async fn start_container(
        &self,
        _: &TtrpcContext,
        request: StartContainerRequest,
    ) -> ttrpc::Result<Empty> {
        container::start(self, request).await
    }

    async fn update_container(
        &self,
        _: &TtrpcContext,
        request: UpdateContainerRequest,
    ) -> ttrpc::Result<Empty> {
        container::update(self, request).await
    }

    async fn resize_pod(&self, _: &TtrpcContext, request: ResizePodRequest) -> ttrpc::Result<Empty> {
        resize::pod(self, request).await
    }

    async fn remove_container(
        &self,
        _: &TtrpcContext,
        request: RemoveContainerRequest,
    ) -> ttrpc::Result<Empty> {
        container::remove(self, request).await
    }

    async fn exec(&self, _: &TtrpcContext, request: ExecRequest) -> ttrpc::Result<ExecResponse> {
        process::exec(self, request).await
    }

    async fn wait(&self, _: &TtrpcContext, request: WaitRequest) -> ttrpc::Result<WaitResponse> {
        process::wait(self, request).await
    }

    async fn signal(&self, _: &TtrpcContext, request: SignalRequest) -> ttrpc::Result<Empty> {
        process::signal(self, request).await
    }

    async fn stats(&self, _: &TtrpcContext, request: StatsRequest) -> ttrpc::Result<StatsResponse> {
        stats::stats(self, request).await
    }

    async fn usage(&self, _: &TtrpcContext, request: UsageRequest) -> ttrpc::Result<UsageResponse> {
        usage::usage(self, request).await
    }

    async fn shutdown(&self, _: &TtrpcContext, request: ShutdownRequest) -> ttrpc::Result<Empty> {
        container::shutdown(self, request).await
    }
}

/// A status with this code and message.
fn refusal(code: Code, message: &str) -> ttrpc::Error {
    ttrpc::Error::RpcStatus(ttrpc::get_status(code, message))
}

/// A container's error as a status.
fn refused(error: &ContainerError) -> ttrpc::Error {
    use agent_container::launch::Failure;
    use agent_container::limits::LimitError;
    let code = match error {
        ContainerError::InvalidId(_)
        | ContainerError::User(_)
        | ContainerError::Spec(_)
        | ContainerError::Target(_)
        | ContainerError::Volume(VolumeError::SubPath { .. })
        | ContainerError::NotMapped { .. }
        | ContainerError::ImageFile(_) => Code::INVALID_ARGUMENT,
        ContainerError::Exists(_) | ContainerError::ExecExists(_) => Code::ALREADY_EXISTS,
        ContainerError::NoContainer(_) | ContainerError::NoExec { .. } => Code::NOT_FOUND,
        ContainerError::Phase { .. } | ContainerError::Limit(LimitError::BelowUse { .. }) => {
            Code::FAILED_PRECONDITION
        }
        ContainerError::Limit(_) => Code::INVALID_ARGUMENT,
        ContainerError::TooManyContainers | ContainerError::TooManyExecs(_) => Code::RESOURCE_EXHAUSTED,
        ContainerError::Io { .. }
        | ContainerError::Slot(_)
        | ContainerError::Image(_)
        | ContainerError::Volume(_)
        | ContainerError::Shared(_)
        | ContainerError::Devices(_)
        | ContainerError::WorkingDirectory(_) => Code::INTERNAL,
        ContainerError::Launch(failure) => match failure.kind {
            FailureKind::NotFound => Code::NOT_FOUND,
            FailureKind::PermissionDenied => Code::PERMISSION_DENIED,
            FailureKind::Other => Code::INTERNAL,
        },
    };
    let message = Failure::from_error(error).message;
    ttrpc::Error::RpcStatus(failure::status(code, &message, reason(error)))
}

/// Why, where the daemon acts on it.
fn reason(error: &ContainerError) -> FailureReason {
    match error {
        ContainerError::Volume(_) => FailureReason::FAILURE_REASON_IMAGE_VOLUME_MOUNT,
        ContainerError::Launch(failure) => match failure.kind {
            FailureKind::NotFound => FailureReason::FAILURE_REASON_EXECUTABLE_NOT_FOUND,
            FailureKind::PermissionDenied => FailureReason::FAILURE_REASON_EXECUTABLE_NOT_RUNNABLE,
            FailureKind::Other => FailureReason::FAILURE_REASON_UNSPECIFIED,
        },
        _ => FailureReason::FAILURE_REASON_UNSPECIFIED,
    }
}

#[cfg(test)]
mod tests {
    use agent_container::launch::Failure;

    use super::*;

    fn status(error: &ContainerError) -> ttrpc::proto::Status {
        match refused(error) {
            ttrpc::Error::RpcStatus(status) => status,
            error => panic!("{error}"),
        }
    }

    #[test]
    fn an_executable_that_does_not_run_is_refused_with_its_reason() {
        for (kind, code, expected) in [
            (FailureKind::NotFound, Code::NOT_FOUND, FailureReason::FAILURE_REASON_EXECUTABLE_NOT_FOUND),
            (
                FailureKind::PermissionDenied,
                Code::PERMISSION_DENIED,
                FailureReason::FAILURE_REASON_EXECUTABLE_NOT_RUNNABLE,
            ),
            (FailureKind::Other, Code::INTERNAL, FailureReason::FAILURE_REASON_UNSPECIFIED),
        ] {
            let status = status(&Failure::new(kind, "why").into());
            assert_eq!((status.code(), status.message()), (code, "why"));
            assert_eq!(failure::reason(&status), expected);
        }
    }

    #[test]
    fn an_image_volume_that_cannot_be_mounted_is_refused_with_its_reason() {
        let source = std::io::ErrorKind::NotFound.into();
        let volume = status(&VolumeError::SubPath { sub_path: "a".into(), source }.into());
        assert_eq!(volume.code(), Code::INVALID_ARGUMENT);
        assert_eq!(failure::reason(&volume), FailureReason::FAILURE_REASON_IMAGE_VOLUME_MOUNT);
        let unknown = status(&ContainerError::NoContainer("c1".into()));
        assert_eq!(unknown.code(), Code::NOT_FOUND);
        assert_eq!(failure::reason(&unknown), FailureReason::FAILURE_REASON_UNSPECIFIED);
    }
}
