//! Blocking work, beside the async threads.

use std::error::Error;
use std::time::Duration;

use crate::error::{PodError, PodErrorKind};

/// Runs blocking work beside the async threads; `doing` is the text of its failure.
pub(crate) async fn blocking<T, E>(
    doing: &str,
    work: impl FnOnce() -> Result<T, E> + Send + 'static,
) -> Result<T, PodError>
where
    T: Send + 'static,
    E: Error + Send + Sync + 'static,
{
    #[cfg(test)]
    if in_place::is_wanted() {
        tokio::task::yield_now().await;
        return work().map_err(|error| PodError::internal(doing).because(error));
    }
    match tokio::task::spawn_blocking(work).await {
        Ok(Ok(value)) => Ok(value),
        Ok(Err(error)) => Err(PodError::internal(doing).because(error)),
        Err(error) => Err(PodError::internal(doing).because(error)),
    }
}

/// Runs blocking work as [`blocking`] does, and gives its answer up after `bound`: a file system that hangs keeps the
/// thread, and not the pod.
pub(crate) async fn blocking_within<T, E>(
    bound: Duration,
    doing: &str,
    work: impl FnOnce() -> Result<T, E> + Send + 'static,
) -> Result<T, PodError>
where
    T: Send + 'static,
    E: Error + Send + Sync + 'static,
{
    within(bound, doing, blocking(doing, work)).await
}

/// Gives a call up after `bound`; `doing` is the text of that failure.
pub(crate) async fn within<T>(
    bound: Duration,
    doing: &str,
    call: impl Future<Output = Result<T, PodError>>,
) -> Result<T, PodError> {
    tokio::time::timeout(bound, call).await.unwrap_or_else(|_| {
        let text = format!("{doing}: no answer within {} s", bound.as_secs());
        Err(PodError::new(PodErrorKind::DeadlineExceeded, text))
    })
}

/// Blocking work on the async thread itself, for a test that must go the same way again: threads take turns as they
/// like, and each turn costs more than the work.
#[cfg(test)]
pub(crate) mod in_place {
    use std::cell::Cell;

    thread_local! {
        static WANTED: Cell<bool> = const { Cell::new(false) };
    }

    /// Has all blocking work of this thread's tasks done in place from now on.
    pub(crate) fn want() {
        WANTED.set(true);
    }

    pub(super) fn is_wanted() -> bool {
        WANTED.get()
    }
}
