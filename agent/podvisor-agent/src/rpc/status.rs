//! The agent's errors as ttrpc statuses. The code is the kind of refusal. The reason is set if the daemon
//! acts on it. The message has the texts of the error and of its sources.

use agent_container::launch::{Failure, FailureKind};
use agent_container::limits::LimitError;
use proto_agent::agent::FailureReason;
use proto_agent::failure;
use tokio::task::JoinError;
use ttrpc::Code;

use crate::containers::{ContainerError, VolumeError};
use crate::disk_volumes::DiskVolumeError;
use crate::memory_volumes::MemoryVolumeError;
use crate::published_volumes::PublishedVolumeError;

/// A status with this code and message.
pub(super) fn refusal(code: Code, message: &str) -> ttrpc::Error {
    ttrpc::Error::RpcStatus(ttrpc::get_status(code, message))
}

/// A status with this code, and the texts of the error and of its sources.
pub(super) fn failed(code: Code, error: &(dyn std::error::Error + 'static)) -> ttrpc::Error {
    refusal(code, &Failure::from_error(error).message)
}

/// The status of a call after its task was cancelled. Only the end of the runtime cancels a task, because a
/// panic ends the agent.
pub(super) fn cancelled(_: JoinError) -> ttrpc::Error {
    refusal(Code::INTERNAL, "the request's task was cancelled")
}

/// A container's error as a status.
pub(super) fn refused(error: &ContainerError) -> ttrpc::Error {
    let code = match error {
        ContainerError::InvalidId(_)
        | ContainerError::PublishedVolume(PublishedVolumeError::Name(_))
        | ContainerError::MemoryVolume(MemoryVolumeError::Name(_) | MemoryVolumeError::SubPath { .. })
        | ContainerError::DiskVolume(DiskVolumeError::Name(_) | DiskVolumeError::SubPath { .. })
        | ContainerError::User(_)
        | ContainerError::Spec(_)
        | ContainerError::Target(_)
        | ContainerError::Volume(VolumeError::SubPath { .. })
        | ContainerError::NotMapped { .. }
        | ContainerError::HostSocket(_)
        | ContainerError::ImageFile(_) => Code::INVALID_ARGUMENT,
        ContainerError::Exists(_) | ContainerError::ExecExists(_) => Code::ALREADY_EXISTS,
        ContainerError::NoContainer(_)
        | ContainerError::NoExec { .. }
        | ContainerError::PublishedVolume(PublishedVolumeError::Unknown(_))
        | ContainerError::MemoryVolume(MemoryVolumeError::Unknown(_)) => Code::NOT_FOUND,
        ContainerError::Phase { .. }
        | ContainerError::MemoryVolume(MemoryVolumeError::Resize { .. })
        | ContainerError::Limit(LimitError::BelowUse { .. }) => Code::FAILED_PRECONDITION,
        ContainerError::Limit(_) | ContainerError::FilterBytes(_) | ContainerError::Filter(_) => {
            Code::INVALID_ARGUMENT
        }
        ContainerError::TooManyContainers(_) | ContainerError::TooManyExecs { .. } => {
            Code::RESOURCE_EXHAUSTED
        }
        ContainerError::Io { .. }
        | ContainerError::Slot(_)
        | ContainerError::Image(_)
        | ContainerError::Volume(_)
        | ContainerError::MemoryVolume(_)
        | ContainerError::DiskVolume(_)
        | ContainerError::PublishedVolume(_)
        | ContainerError::Shared(_)
        | ContainerError::SharedPlace(_)
        | ContainerError::HostWork(_)
        | ContainerError::Devices(_) => Code::INTERNAL,
        ContainerError::Launch(failure) => match failure.kind {
            FailureKind::ExecutableNotFound => Code::NOT_FOUND,
            FailureKind::ExecutableNotRunnable => Code::PERMISSION_DENIED,
            FailureKind::Spec => Code::INVALID_ARGUMENT,
            FailureKind::Other => Code::INTERNAL,
        },
    };
    let message = Failure::from_error(error).message;
    ttrpc::Error::RpcStatus(failure::status(code, &message, reason(error)))
}

/// The reason, if the daemon acts on it.
fn reason(error: &ContainerError) -> FailureReason {
    match error {
        ContainerError::Volume(_) => FailureReason::FAILURE_REASON_IMAGE_VOLUME_MOUNT,
        ContainerError::Launch(failure) => match failure.kind {
            FailureKind::ExecutableNotFound => FailureReason::FAILURE_REASON_EXECUTABLE_NOT_FOUND,
            FailureKind::ExecutableNotRunnable => FailureReason::FAILURE_REASON_EXECUTABLE_NOT_RUNNABLE,
            FailureKind::Spec | FailureKind::Other => FailureReason::FAILURE_REASON_UNSPECIFIED,
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
            (
                FailureKind::ExecutableNotFound,
                Code::NOT_FOUND,
                FailureReason::FAILURE_REASON_EXECUTABLE_NOT_FOUND,
            ),
            (
                FailureKind::ExecutableNotRunnable,
                Code::PERMISSION_DENIED,
                FailureReason::FAILURE_REASON_EXECUTABLE_NOT_RUNNABLE,
            ),
            (FailureKind::Spec, Code::INVALID_ARGUMENT, FailureReason::FAILURE_REASON_UNSPECIFIED),
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
