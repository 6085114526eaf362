//! Calls that outlive their callers: requests to drivers, and work of their own.

use tokio::sync::oneshot;

use crate::command::{Command, Reply};
use crate::error::{PodError, PodErrorKind};
use crate::roster::PodEntry;

/// Asks a driver and waits for its answer.
pub(super) async fn ask<T>(
    entry: &PodEntry,
    command: impl FnOnce(Reply<T>) -> Command,
) -> Result<T, PodError> {
    let gone = || PodError::new(PodErrorKind::NotFound, format!("no pod {}", entry.view.id));
    let (reply, answer) = oneshot::channel();
    entry.commands.send(command(reply)).await.map_err(|_| gone())?;
    answer.await.map_err(|_| gone())?
}

/// Runs to its end even if the caller goes away.
pub(super) async fn detached<T: Send + 'static>(
    work: impl Future<Output = Result<T, PodError>> + Send + 'static,
) -> Result<T, PodError> {
    match tokio::spawn(work).await {
        Ok(outcome) => outcome,
        Err(error) => Err(PodError::internal("a task of the daemon failed").because(error)),
    }
}
