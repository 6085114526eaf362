//! Failures of backends, each with its kind.
//!
//! A backend's file converts its own errors and sets the kind there, once. All other code looks only at the
//! kind, never at the error behind it. This error is kept for its text.

use std::error::Error;
use std::fmt;

use runtime_blocking::PoolError;
use runtime_guest::FailureReason;

use crate::error::{PodError, PodErrorKind};

/// A failed call to a backend. Text and causes are those of the backend's own error.
#[derive(Debug)]
pub(crate) struct BackendError {
    kind: BackendErrorKind,
    reason: Option<FailureReason>,
    error: Box<dyn Error + Send + Sync>,
}

/// The sort of a backend's failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BackendErrorKind {
    /// No answer: the other side has ended, or hangs.
    Unreachable,
    /// The other side has ended for certain, and will never answer.
    Ended,
    /// The request asks for something impossible. A retry would not change this.
    Invalid,
    /// The request makes sense, but not in this state.
    Precondition,
    /// The VMM understood the request and refused it for a reason of its own.
    Refused,
    /// The guest understood the request and could not do it. What is in the pod decides this, or a lying
    /// guest.
    Guest,
    /// The node could not do it.
    Failed,
}

impl BackendError {
    pub(crate) fn new(kind: BackendErrorKind, error: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        BackendError { kind, reason: None, error: error.into() }
    }

    /// The node's failure.
    pub(crate) fn failed(error: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        BackendError::new(BackendErrorKind::Failed, error)
    }

    /// Adds the agent's reason to the error.
    pub(crate) fn with_reason(self, reason: Option<FailureReason>) -> Self {
        BackendError { reason, ..self }
    }

    pub(crate) fn kind(&self) -> BackendErrorKind {
        self.kind
    }

    /// Whether the call may succeed later: it timed out, or the node lacked something (descriptors, memory,
    /// room in a backlog).
    pub(crate) fn may_pass(&self) -> bool {
        matches!(self.kind, BackendErrorKind::Unreachable | BackendErrorKind::Failed)
    }

    /// Returns the failure of the work around this call.
    pub(crate) fn during(self, doing: impl Into<String>) -> PodError {
        let kind = match self.kind {
            BackendErrorKind::Unreachable | BackendErrorKind::Ended => PodErrorKind::Unavailable,
            BackendErrorKind::Invalid => PodErrorKind::InvalidArgument,
            BackendErrorKind::Precondition => PodErrorKind::FailedPrecondition,
            BackendErrorKind::Guest => PodErrorKind::Guest,
            BackendErrorKind::Refused | BackendErrorKind::Failed => PodErrorKind::Internal,
        };
        PodError::new(kind, doing).with_reason(self.reason).because(self.error)
    }
}

impl fmt::Display for BackendError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.error.fmt(f)
    }
}

impl Error for BackendError {
    /// The cause of the backend's error. This error's text is the backend's own.
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.error.source()
    }
}

impl From<std::io::Error> for BackendError {
    fn from(error: std::io::Error) -> Self {
        BackendError::failed(error)
    }
}

impl From<PoolError> for BackendError {
    fn from(error: PoolError) -> Self {
        let kind = match error {
            PoolError::Full { .. } => BackendErrorKind::Unreachable,
            PoolError::Died(_) => BackendErrorKind::Failed,
        };
        BackendError::new(kind, error)
    }
}
