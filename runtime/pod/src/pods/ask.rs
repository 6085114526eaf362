//! Calls independent of their callers' lifetime: requests to drivers, and other work.

use std::time::Duration;

use runtime_spans::{Carried, always, span};
use tokio::sync::oneshot;

use crate::command::{Asked, Command, Reply};
use crate::error::{PodError, PodErrorKind};
use crate::roster::PodEntry;
use crate::spans;

/// How long a call waits for its pod to be recovered after the daemon's start. A recovery has limits of its
/// own: for connecting to an unresponsive VM, and for killing it.
const RECOVERED_WITHIN: Duration = Duration::from_secs(110);

/// The longest part of that time to be waited for at once.
const SLICE: Duration = Duration::from_secs(10);

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

/// Waits at most this long. If the node stands still, its clock jumps afterwards, and only one slice is over:
/// others, too, go on with their work then, and the call waits for it.
async fn in_slices<T>(limit: Duration, work: impl Future<Output = T>) -> Option<T> {
    tokio::pin!(work);
    for _ in 0..limit.as_secs().div_ceil(SLICE.as_secs()) {
        if let Ok(done) = tokio::time::timeout(SLICE, &mut work).await {
            return Some(done);
        }
    }
    None
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

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_node_that_stood_still_has_time_left_to_recover_its_pod() {
        let (done, answer) = oneshot::channel();
        let waiting = in_slices(RECOVERED_WITHIN, answer);
        let recovering = async {
            tokio::time::advance(RECOVERED_WITHIN * 2).await;
            tokio::time::sleep(Duration::from_secs(1)).await;
            done.send(()).unwrap();
        };
        let (waited, ()) = tokio::join!(waiting, recovering);
        assert_eq!(waited, Some(Ok(())));
    }

    #[tokio::test(start_paused = true)]
    async fn a_pod_that_is_never_recovered_is_waited_for_as_long_as_the_limit_says() {
        let begun = tokio::time::Instant::now();
        assert_eq!(in_slices(RECOVERED_WITHIN, std::future::pending::<()>()).await, None);
        assert_eq!(begun.elapsed(), RECOVERED_WITHIN);
    }
}
