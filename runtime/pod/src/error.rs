//! Why something could not be done to a pod.

use std::error::Error;
use std::sync::Arc;

use runtime_guest::FailureReason;
use runtime_spec::{SpecError, StartFailure};

use crate::plugins::PluginRefusal;

/// The sort of a failure, for the caller's code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PodErrorKind {
    /// No such pod or container.
    NotFound,
    /// The name is taken.
    AlreadyExists,
    /// The request makes no sense.
    InvalidArgument,
    /// The request makes sense, but not now: the pod is stopped, the container runs already.
    FailedPrecondition,
    /// The caller's time-out passed.
    DeadlineExceeded,
    /// The pod's VM is gone or does not answer.
    Unavailable,
    /// The request makes sense, and this runtime cannot do it.
    Unsupported,
    /// The pod's guest could not do it, and said so: the node did its part.
    Guest,
    /// Anything else.
    Internal,
}

/// A failure. The text names the current work ("booting the VM", "creating the container"). The cause is its
/// source and not in the text. Cheap to clone: callers that joined get the same one.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{message}")]
pub struct PodError {
    kind: PodErrorKind,
    message: String,
    /// The agent's reason for its refusal, if callers act on it.
    reason: Option<FailureReason>,
    #[source]
    source: Option<Arc<dyn Error + Send + Sync>>,
}

impl PodError {
    pub(crate) fn new(kind: PodErrorKind, message: impl Into<String>) -> Self {
        PodError { kind, message: message.into(), reason: None, source: None }
    }

    pub(crate) fn internal(message: impl Into<String>) -> Self {
        PodError::new(PodErrorKind::Internal, message)
    }

    pub(crate) fn because(mut self, source: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        self.source = Some(Arc::from(source.into()));
        self
    }

    /// Replaces the text.
    pub(crate) fn reworded(mut self, message: String) -> Self {
        self.message = message;
        self
    }

    /// The sort of the failure.
    pub fn kind(&self) -> PodErrorKind {
        self.kind
    }

    /// Adds the agent's reason.
    pub(crate) fn with_reason(mut self, reason: Option<FailureReason>) -> Self {
        self.reason = reason;
        self
    }

    /// The agent's reason for its refusal, if callers act on it.
    pub(crate) fn reason(&self) -> Option<FailureReason> {
        self.reason
    }

    /// Why the program could not be executed, if this is the cause.
    pub fn start_failure(&self) -> Option<StartFailure> {
        match self.reason? {
            FailureReason::Start(failure) => Some(failure),
            FailureReason::ImageVolumeMount => None,
        }
    }

    /// The text and those of all causes, joined by ": ".
    pub fn chain(&self) -> String {
        chain_of(self)
    }
}

/// An error's text and those of all its causes, joined by ": ".
pub(crate) fn chain_of(error: &(dyn Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text += &format!(": {error}");
        cause = error.source();
    }
    text
}

impl From<PluginRefusal> for PodError {
    fn from(refusal: PluginRefusal) -> Self {
        PodError::new(PodErrorKind::FailedPrecondition, refusal.0)
    }
}

impl From<SpecError> for PodError {
    fn from(error: SpecError) -> Self {
        let kind = match error {
            SpecError::Unsupported { .. } => PodErrorKind::Unsupported,
            SpecError::Invalid { .. } | SpecError::Beyond { .. } => PodErrorKind::InvalidArgument,
        };
        PodError::new(kind, error.to_string())
    }
}
