//! The refusal of an edit impossible for a container in a VM.

use runtime_cdi::Origin;

use crate::error::Failure;

/// Refuses an edit of `field`.
pub(super) fn refusal(origin: &Origin, field: &str, reason: &str) -> Failure {
    Failure::invalid(format!("{origin}: containerEdits.{field}: {reason}"))
}
