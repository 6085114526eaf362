//! What may go wrong with a guest, as a caller must tell it apart.

use std::io;

/// A call that failed.
#[derive(Debug, thiserror::Error)]
pub enum GuestError {
    /// The agent answered, and said no.
    #[error("the agent refused {method}: {message}")]
    Refused {
        /// Which call.
        method: &'static str,
        /// The agent's words. They may come from a guest that lies.
        message: String,
        /// What sort of refusal.
        code: RefusedCode,
    },
    /// The guest cannot be talked to: it has ended, or never listened.
    #[error("the guest cannot be reached for {method}")]
    Unreachable {
        /// Which call.
        method: &'static str,
        /// The connection's failure.
        source: io::Error,
    },
    /// It answered with something that is no answer.
    #[error("the guest's answer to {method} is not valid: {message}")]
    Protocol {
        /// Which call.
        method: &'static str,
        /// What is wrong with it.
        message: String,
    },
    /// It did not answer in time.
    #[error("the guest did not answer {method} in time")]
    Deadline {
        /// Which call.
        method: &'static str,
    },
}

/// The refusals that callers tell apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RefusedCode {
    /// No such container, exec, or executable (exit code 127).
    NotFound,
    /// The executable may not be executed (exit code 126).
    PermissionDenied,
    /// The container, exec or pod is there already.
    AlreadyExists,
    /// Not in this phase: an exec in a container that has ended.
    FailedPrecondition,
    /// The request makes no sense to the agent.
    InvalidArgument,
    /// A bound of the agent is reached.
    ResourceExhausted,
    /// Anything else.
    Other,
}

impl GuestError {
    /// The code of a refusal.
    pub fn refused(&self) -> Option<RefusedCode> {
        match self {
            GuestError::Refused { code, .. } => Some(*code),
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
        GuestError::Refused { method, message: status.message().to_owned(), code }
    }

    pub(crate) fn unreachable(method: &'static str) -> impl Fn(io::Error) -> GuestError {
        move |source| GuestError::Unreachable { method, source }
    }
}
