//! Blocking work, beside the async threads.

use std::error::Error;

use crate::error::PodError;

/// Runs blocking work beside the async threads; `doing` is the text of its failure.
pub(crate) async fn blocking<T, E>(
    doing: &str,
    work: impl FnOnce() -> Result<T, E> + Send + 'static,
) -> Result<T, PodError>
where
    T: Send + 'static,
    E: Error + Send + Sync + 'static,
{
    match tokio::task::spawn_blocking(work).await {
        Ok(Ok(value)) => Ok(value),
        Ok(Err(error)) => Err(PodError::internal(doing).because(error)),
        Err(error) => Err(PodError::internal(doing).because(error)),
    }
}
