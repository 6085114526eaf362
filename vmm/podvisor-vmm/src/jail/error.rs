//! The error of entering the jail. It names the failed step.

/// The jail could not be entered.
#[derive(Debug, thiserror::Error)]
#[error("cannot enter the jail: {step}")]
pub(crate) struct JailError {
    step: &'static str,
    source: Box<dyn std::error::Error + Send + Sync>,
}

/// Wraps the error of a step.
pub(super) fn failed<E: std::error::Error + Send + Sync + 'static>(
    step: &'static str,
) -> impl FnOnce(E) -> JailError {
    move |source| JailError { step, source: Box::new(source) }
}
