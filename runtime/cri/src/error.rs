//! What can go wrong behind an RPC, and the gRPC code that says so. The kubelet acts on codes:
//! `NotFound` from a status call means gone, `DeadlineExceeded` from ExecSync a failed probe,
//! `Unimplemented` an RPC that it may stop calling; so a wish that we cannot fulfil is not that.

use runtime_image::ImageError;
use runtime_pod::{Missed, PodError, PodErrorKind};
use runtime_streaming::ServerError;
use tonic::{Code, Status};

/// Longest message sent, in bytes: gRPC carries it in an HTTP/2 header, which clients bound (Go: 8 KiB
/// by default in some proxies, 16 MiB at most).
const MESSAGE_BYTES_MAX: usize = 6 * 1024;

/// Why an RPC fails.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Failure {
    /// The request itself makes no sense.
    #[error("{0}")]
    Invalid(String),
    /// What it names is not there.
    #[error("{what} {id:?} not found")]
    NotFound { what: &'static str, id: String },
    /// An RPC that this version does not have. Clients fall back on the code; people read the name.
    #[error("podvisor does not implement {0}")]
    Absent(&'static str),
    /// The node cannot do what is asked.
    #[error("{0}")]
    Node(String),
    #[error(transparent)]
    Missed(#[from] Missed),
    /// A task of the daemon ended before its work.
    #[error("a task of the daemon failed while {0}")]
    Died(&'static str),
    #[error(transparent)]
    Pod(#[from] PodError),
    #[error(transparent)]
    Image(#[from] ImageError),
    #[error(transparent)]
    Streaming(#[from] ServerError),
}

impl Failure {
    pub(crate) fn invalid(message: impl Into<String>) -> Self {
        Failure::Invalid(message.into())
    }

    fn code(&self) -> Code {
        match self {
            Failure::Invalid(_) => Code::InvalidArgument,
            Failure::NotFound { .. } => Code::NotFound,
            Failure::Absent(_) => Code::Unimplemented,
            Failure::Node(_) => Code::Internal,
            Failure::Missed(_) => Code::ResourceExhausted,
            Failure::Died(_) => Code::Internal,
            Failure::Pod(error) => match error.kind() {
                PodErrorKind::NotFound => Code::NotFound,
                PodErrorKind::AlreadyExists => Code::AlreadyExists,
                PodErrorKind::InvalidArgument | PodErrorKind::Unsupported => Code::InvalidArgument,
                PodErrorKind::FailedPrecondition => Code::FailedPrecondition,
                PodErrorKind::DeadlineExceeded => Code::DeadlineExceeded,
                PodErrorKind::Unavailable => Code::Unavailable,
                PodErrorKind::Internal => Code::Internal,
            },
            // The kubelet hands this on as "too many requests".
            Failure::Streaming(ServerError::TooManyPending(_)) => Code::ResourceExhausted,
            Failure::Streaming(_) => Code::Internal,
            // The kubelet shows the message and retries, whatever the code.
            Failure::Image(_) => Code::Unknown,
        }
    }
}

impl From<Failure> for Status {
    fn from(failure: Failure) -> Status {
        let mut text = chain(&failure);
        if text.len() > MESSAGE_BYTES_MAX {
            let end = (0..=MESSAGE_BYTES_MAX).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0);
            text.truncate(end);
            text.push('…');
        }
        Status::new(failure.code(), text)
    }
}

/// The error and its sources on one line, outermost first.
pub(crate) fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(inner) = source {
        text.push_str(": ");
        text.push_str(&inner.to_string());
        source = inner.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_longer_than_a_header_is_cut_at_a_character() {
        let status = Status::from(Failure::invalid("é".repeat(MESSAGE_BYTES_MAX)));
        assert!(status.message().len() <= MESSAGE_BYTES_MAX + '…'.len_utf8());
        assert!(status.message().ends_with('…'));
    }

    #[test]
    fn what_is_not_there_answers_not_found_with_its_id() {
        let status = Status::from(Failure::NotFound { what: "container", id: "c1".into() });
        assert_eq!(status.code(), Code::NotFound);
        assert_eq!(status.message(), "container \"c1\" not found");
    }
}
