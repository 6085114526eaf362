//! Calls independent of their callers' lifetime: requests to drivers, and other work.

use std::time::Duration;

use runtime_spans::{Carried, always, span};
use tokio::sync::oneshot;

use crate::command::{Asked, Command, Reply};
use crate::error::{PodError, PodErrorKind};
use crate::roster::PodEntry;
use crate::slices::in_slices;
use crate::spans;

/// How long a call waits for its pod to be recovered after the daemon's start. A recovery has limits of its
/// own: for connecting to an unresponsive VM, and for killing it.
const RECOVERED_WITHIN: Duration = Duration::from_secs(110);

/// Waits until the pod's driver has recovered the pod, up to a limit.
pub(super) async fn recovered(entry: &PodEntry) -> Result<(), PodError> {
    let mut recovered = entry.recovered.clone();
    if *recovered.borrow() {
        return Ok(());
    }
    let waiting = in_slices(RECOVERED_WITHIN, recovered.wait_for(|recovered| *recovered));
    match always(span!("wait for the pod's recovery"), waiting).await {
        // A missing driver is noticed by the next call to it.
        Some(_) => Ok(()),
        None => Err(still_recovering(entry)),
    }
}

/// The error of a call after waiting too long for its pod's recovery.
pub(super) fn still_recovering(entry: &PodEntry) -> PodError {
    let text = format!("pod {} is still being recovered after the daemon's start", entry.view.id);
    PodError::new(PodErrorKind::Unavailable, text)
}

/// Asks a driver and waits for its answer.
pub(super) async fn ask<T>(
    entry: &PodEntry,
    command: impl FnOnce(Reply<T>) -> Command,
) -> Result<T, PodError> {
    spans::of_pod(&entry.view.id);
    let gone = || PodError::new(PodErrorKind::NotFound, format!("no pod {}", entry.view.id));
    recovered(entry).await?;
    let (reply, answer) = oneshot::channel();
    let (call, waiting) = (Carried::here(), span!("wait for the pod's driver"));
    let asked = Asked { command: command(reply), call, waiting };
    entry.commands.send(asked).await.map_err(|_| gone())?;
    answer.await.map_err(|_| gone())?
}

/// Runs to its end even if the caller goes away.
pub(super) async fn detached<T: Send + 'static>(
    work: impl Future<Output = Result<T, PodError>> + Send + 'static,
) -> Result<T, PodError> {
    match tokio::spawn(Carried::here().around(work)).await {
        Ok(outcome) => outcome,
        Err(error) => Err(PodError::internal("a task of the daemon failed").because(error)),
    }
}
