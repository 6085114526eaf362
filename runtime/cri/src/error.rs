//! Failures behind an RPC, and their gRPC codes. The kubelet acts on codes: `NotFound` from a status call
//! means gone, `DeadlineExceeded` from ExecSync a failed probe. `Unimplemented` means an RPC it may stop
//! calling, so an unsupported request has another code.

use std::collections::HashMap;

use runtime_blocking::PoolError;
use runtime_cdi::ResolveError;
use runtime_image::{ImageError, ImageErrorKind};
use runtime_pod::{Missed, PodError, PodErrorKind};
use runtime_spec::StartFailure;
use runtime_streaming::ServerError;
use tonic::{Code, Status};
use tonic_types::{ErrorDetails, StatusExt};

/// Domain of the reasons in a status's details (`google.rpc.ErrorInfo`). A program that could not be executed
/// has a [`StartFailure`]'s name there, so that clients need not read messages.
pub const ERROR_DOMAIN: &str = "podvisor";

/// Longest message sent, in bytes. gRPC carries it in an HTTP/2 header, and clients bound headers (Go: 8 KiB
/// by default in some proxies, 16 MiB at most).
const MESSAGE_BYTES_MAX: usize = 6 * 1024;

/// The kubelet's name for an unresponsive registry (cri-api, `errors.ErrRegistryUnavailable`), at the
/// beginning of a message. Signatures are not checked here, so the name for a wrong one is not needed.
const REGISTRY_UNAVAILABLE: &str = "RegistryUnavailable: ";

/// A failed RPC.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Failure {
    /// The request itself is invalid.
    #[error("{0}")]
    Invalid(String),
    /// The named object does not exist.
    #[error("{what} {id:?} not found")]
    NotFound { what: &'static str, id: String },
    /// The named container has ended.
    #[error("container {0:?} has ended, so nothing counts for it any more")]
    Ended(String),
    /// An RPC missing in this version. Clients react to the code; people read the name.
    #[error("podvisor does not implement {0}")]
    Absent(&'static str),
    /// The node cannot fulfil the request.
    #[error("{0}")]
    Node(String),
    #[error(transparent)]
    Missed(#[from] Missed),
    /// A disk does not answer, or the work on it died.
    #[error(transparent)]
    Blocked(#[from] PoolError),
    /// The node's files do not define a CDI device.
    #[error(transparent)]
    Cdi(#[from] ResolveError),
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

    fn start_failure(&self) -> Option<StartFailure> {
        match self {
            Failure::Pod(error) => error.start_failure(),
            _ => None,
        }
    }

    pub(crate) fn code(&self) -> Code {
        match self {
            Failure::Invalid(_) | Failure::Cdi(_) => Code::InvalidArgument,
            Failure::NotFound { .. } => Code::NotFound,
            Failure::Ended(_) => Code::FailedPrecondition,
            Failure::Absent(_) => Code::Unimplemented,
            Failure::Node(_) => Code::Internal,
            Failure::Missed(_) => Code::ResourceExhausted,
            Failure::Blocked(PoolError::Full { .. }) => Code::Unavailable,
            Failure::Blocked(PoolError::Died(_)) => Code::Internal,
            Failure::Pod(error) => match error.kind() {
                PodErrorKind::NotFound => Code::NotFound,
                PodErrorKind::AlreadyExists => Code::AlreadyExists,
                PodErrorKind::InvalidArgument | PodErrorKind::Unsupported => Code::InvalidArgument,
                PodErrorKind::FailedPrecondition => Code::FailedPrecondition,
                PodErrorKind::DeadlineExceeded => Code::DeadlineExceeded,
                PodErrorKind::Unavailable => Code::Unavailable,
                // As in containerd for a refusal of runc. No failure of the node (`requests.rs`).
                PodErrorKind::Guest => Code::Unknown,
                PodErrorKind::Internal => Code::Internal,
            },
            // The kubelet reports this as "too many requests".
            Failure::Streaming(ServerError::TooManyPending(_)) => Code::ResourceExhausted,
            Failure::Streaming(_) => Code::Internal,
            Failure::Image(error) => match error.kind() {
                ImageErrorKind::Name => Code::InvalidArgument,
                // The kubelet removes the code from such a message, and then reads its beginning.
                ImageErrorKind::Unavailable => Code::Unknown,
                ImageErrorKind::NotFound => Code::NotFound,
                ImageErrorKind::Unauthenticated => Code::Unauthenticated,
                ImageErrorKind::Denied => Code::PermissionDenied,
                ImageErrorKind::Unusable => Code::FailedPrecondition,
                ImageErrorKind::Full => Code::ResourceExhausted,
                ImageErrorKind::Node => Code::Internal,
            },
        }
    }

    /// The beginning of the message, for the kubelet to identify a failure. It then uses this word as the
    /// reason in the pod's status, and `ErrImagePull` otherwise.
    fn name(&self) -> &'static str {
        match self {
            Failure::Image(error) if error.kind() == ImageErrorKind::Unavailable => REGISTRY_UNAVAILABLE,
            _ => "",
        }
    }
}

impl From<Failure> for Status {
    fn from(failure: Failure) -> Status {
        let mut text = format!("{}{}", failure.name(), chain(&failure));
        if text.len() > MESSAGE_BYTES_MAX {
            let end = (0..=MESSAGE_BYTES_MAX).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0);
            text.truncate(end);
            text.push('…');
        }
        match failure.start_failure() {
            Some(start) => Status::with_error_details(failure.code(), text, details(start)),
            None => Status::new(failure.code(), text),
        }
    }
}

fn details(start: StartFailure) -> ErrorDetails {
    ErrorDetails::with_error_info(start.name(), ERROR_DOMAIN, HashMap::new())
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

    #[test]
    fn a_failed_pull_has_the_code_or_the_name_of_its_kind() {
        let (registry, what) = ("r".to_owned(), "manifest r/x:1".to_owned());
        let status = |error: ImageError| Status::from(Failure::from(error));
        let missing = status(ImageError::NotFound { registry: registry.clone(), what: what.clone() });
        assert_eq!((missing.code(), missing.message()), (Code::NotFound, "registry r has no manifest r/x:1"));
        let unauthorized =
            ImageError::Unauthorized { registry: registry.clone(), what: what.clone(), said: String::new() };
        assert_eq!(status(unauthorized).code(), Code::Unauthenticated);
        assert_eq!(
            status(ImageError::Denied { registry, what, said: String::new() }).code(),
            Code::PermissionDenied
        );
        let late = status(ImageError::Deadline { what: "getting manifest r/x:1".into(), seconds: 90 });
        assert_eq!(late.code(), Code::Unknown);
        assert_eq!(late.message(), "RegistryUnavailable: getting manifest r/x:1 took longer than 90 s");
    }

    #[test]
    fn a_status_names_the_start_failure_in_its_details() {
        let status = Status::with_error_details(
            Code::InvalidArgument,
            "no",
            details(StartFailure::ExecutableNotFound),
        );
        let info = status.get_details_error_info().unwrap();
        assert_eq!(StartFailure::from_name(&info.reason), Some(StartFailure::ExecutableNotFound));
        assert_eq!(info.domain, ERROR_DOMAIN);
        assert!(Status::from(Failure::invalid("x")).get_details_error_info().is_none());
    }
}
