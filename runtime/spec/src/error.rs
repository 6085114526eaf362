//! The refusal of a spec.

/// A refused spec. The text names the field as CRI spells it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SpecError {
    /// A valid request, but unsupported by this runtime.
    #[error("{field}: {what} not supported yet")]
    Unsupported {
        /// The field, as CRI spells it.
        field: &'static str,
        /// The request, as the subject of "… not supported yet" ("localhost profiles are").
        what: String,
    },
    /// An invalid value.
    #[error("{field}: {reason}")]
    Invalid {
        /// The field, as CRI spells it.
        field: &'static str,
        /// The reason, after the field's name.
        reason: String,
    },
    /// More than the pod's VM may have.
    #[error("{field}: {reason}")]
    Beyond {
        /// The field, as CRI spells it.
        field: &'static str,
        /// The reason, with the numbers.
        reason: String,
    },
}

impl SpecError {
    pub(crate) fn unsupported(field: &'static str, what: impl Into<String>) -> Self {
        SpecError::Unsupported { field, what: what.into() }
    }

    pub(crate) fn invalid(field: &'static str, reason: impl Into<String>) -> Self {
        SpecError::Invalid { field, reason: reason.into() }
    }
}
