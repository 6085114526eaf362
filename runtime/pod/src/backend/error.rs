//! Failures of backends, and what sort they are.

use std::error::Error;

use runtime_guest::{FailureReason, GuestError, RefusedCode};
use runtime_vm::VmError;

use crate::error::PodErrorKind;

/// What went wrong in a backend; its chain is kept as an error's source.
pub(crate) type BackendError = Box<dyn Error + Send + Sync>;

/// What sort of failure it is that the other side understood and said no to: asking again, or
/// elsewhere, would not help. `None` where it did not answer at all.
pub(crate) fn refusal(error: &BackendError) -> Option<PodErrorKind> {
    if matches!(error.downcast_ref::<VmError>(), Some(VmError::Refused { .. })) {
        return Some(PodErrorKind::Internal);
    }
    Some(match error.downcast_ref::<GuestError>()?.refused()? {
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
pub(crate) fn unrunnable(error: &(dyn Error + Send + Sync + 'static)) -> Option<Unrunnable> {
    match error.downcast_ref::<GuestError>()?.reason()? {
        FailureReason::ExecutableNotFound => Some(Unrunnable::NotFound),
        FailureReason::ExecutableNotRunnable => Some(Unrunnable::NotPermitted),
        FailureReason::ImageVolumeMount => None,
    }
}

/// The agent's message where it refused to mount an image volume.
pub(crate) fn volume_refusal<'a>(error: &'a (dyn Error + Send + Sync + 'static)) -> Option<&'a str> {
    match error.downcast_ref::<GuestError>()? {
        GuestError::Refused { message, reason: Some(FailureReason::ImageVolumeMount), .. } => Some(message),
        _ => None,
    }
}
