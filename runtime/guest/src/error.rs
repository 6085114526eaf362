//! Failures of calls to a guest, by kind and reason as callers distinguish them.

use std::io;

use proto_agent::version::VersionError;
use proto_agent::{agent, failure};
use runtime_spans::GuestText;
use runtime_spec::StartFailure;

use crate::text::{REFUSAL_CHARS_MAX, printable};

/// A failed call.
#[derive(Debug, thiserror::Error)]
pub enum GuestError {
    /// The agent answered with a refusal.
    #[error("the agent refused {method}")]
    Refused {
        /// Name of the call.
        method: &'static str,
        /// The agent's text. It may come from a lying guest.
        #[source]
        message: GuestText,
        /// The sort of refusal.
        code: RefusedCode,
        /// The reason, if the daemon acts on it.
        reason: Option<FailureReason>,
    },
    /// The guest cannot be reached: it has ended, or never listened.
    #[error("the guest cannot be reached for {method}")]
    Unreachable {
        /// Name of the call.
        method: &'static str,
        /// The connection's failure.
        source: io::Error,
    },
    /// The guest's answer is not valid.
    #[error("the guest's answer to {method} is not valid: {message}")]
    Protocol {
        /// Name of the call.
        method: &'static str,
        /// Defect of the answer.
        message: String,
    },
    /// The agent speaks another protocol: daemon and guest image are of different builds.
    #[error(transparent)]
    Version(#[from] VersionError),
    /// The request is no JSON: a path in it is not UTF-8.
    #[error("the request of {method} cannot be written as JSON")]
    Unsendable {
        /// Name of the call.
        method: &'static str,
        /// The failure of the encoder.
        source: serde_json::Error,
    },
    /// The guest did not answer in time.
    #[error("the guest did not answer {method} in time")]
    Deadline {
        /// Name of the call.
        method: &'static str,
    },
}

/// Kinds of refusals, as callers distinguish them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RefusedCode {
    /// No such container, exec, or executable.
    NotFound,
    /// The executable may not be executed.
    PermissionDenied,
    /// The container, exec or pod already exists.
    AlreadyExists,
    /// The container's phase does not allow the call, for example an exec in a stopped container.
    FailedPrecondition,
    /// The request makes no sense to the agent.
    InvalidArgument,
    /// A bound of the agent is reached.
    ResourceExhausted,
    /// Anything else.
    Other,
}

/// Reasons of refusals with an effect in the daemon.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FailureReason {
    /// A program cannot be executed.
    Start(StartFailure),
    /// An image volume cannot be mounted.
    ImageVolumeMount,
}

impl FailureReason {
    fn of(status: &ttrpc::Status) -> Option<FailureReason> {
        match failure::reason(status) {
            agent::FailureReason::FAILURE_REASON_UNSPECIFIED => None,
            agent::FailureReason::FAILURE_REASON_EXECUTABLE_NOT_FOUND => {
                Some(Self::Start(StartFailure::ExecutableNotFound))
            }
            agent::FailureReason::FAILURE_REASON_EXECUTABLE_NOT_RUNNABLE => {
                Some(Self::Start(StartFailure::ExecutableNotRunnable))
            }
            agent::FailureReason::FAILURE_REASON_IMAGE_VOLUME_MOUNT => Some(Self::ImageVolumeMount),
        }
    }
}

impl GuestError {
    /// The code of a refusal.
    pub fn refused(&self) -> Option<RefusedCode> {
        match self {
            GuestError::Refused { code, .. } => Some(*code),
            _ => None,
        }
    }

    /// The reason of a refusal, if it has one.
    pub fn reason(&self) -> Option<FailureReason> {
        match self {
            GuestError::Refused { reason, .. } => *reason,
            _ => None,
        }
    }

    pub(crate) fn from_ttrpc(method: &'static str, error: ttrpc::Error) -> GuestError {
        use ttrpc::Code;
        let status = match error {
            ttrpc::Error::RpcStatus(status) => status,
            error => return GuestError::Unreachable { method, source: io::Error::other(error) },
        };
        let code = match status.code() {
            Code::NOT_FOUND => RefusedCode::NotFound,
            Code::PERMISSION_DENIED => RefusedCode::PermissionDenied,
            Code::ALREADY_EXISTS => RefusedCode::AlreadyExists,
            Code::FAILED_PRECONDITION => RefusedCode::FailedPrecondition,
            Code::INVALID_ARGUMENT => RefusedCode::InvalidArgument,
            Code::RESOURCE_EXHAUSTED => RefusedCode::ResourceExhausted,
            Code::DEADLINE_EXCEEDED => return GuestError::Deadline { method },
            _ => RefusedCode::Other,
        };
        let reason = FailureReason::of(&status);
        let message = GuestText(printable(status.message(), REFUSAL_CHARS_MAX));
        GuestError::Refused { method, message, code, reason }
    }

    pub(crate) fn unreachable(method: &'static str) -> impl Fn(io::Error) -> GuestError {
        move |source| GuestError::Unreachable { method, source }
    }
}
