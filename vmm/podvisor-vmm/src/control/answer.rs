//! The answer to a request, and how one is refused.

use proto_vmm::{Refusal, Response};

/// The answer to a request.
pub(super) type Answer = Result<Response, Refusal>;

/// Refuses a request for a reason.
pub(super) fn refusal(message: impl Into<String>) -> Refusal {
    Refusal { message: message.into() }
}
