//! Watches a running container: its exit is reported only after every byte of its output is in the log.

use std::sync::OnceLock;
use std::time::Duration;

use runtime_guest::ProcessExit;
use runtime_spans::logged;
use tokio::sync::{mpsc, watch};

use crate::backend::BackendErrorKind;
use crate::container::kill;
use crate::error::chain_of;
use crate::io::copiers::Copiers;
use crate::live::Live;
use crate::spans;

/// How long output may go on after the container's first process has ended. A child that still holds the
/// pipes then is killed.
const OUTPUT_AFTER_EXIT: Duration = Duration::from_secs(2);

/// How long the log may take for the rest of a container's output. After this time, the disk hangs or the
/// guest does not release a process. Callers waiting for the container's end do not wait for it.
const LOGGED_WITHIN: Duration = Duration::from_secs(120);

/// How long the agent may take to kill the processes remaining after a container.
const KILLED_WITHIN: Duration = Duration::from_secs(15);

/// How long copiers may take after their VM has ended: their sockets are closed.
const OUTPUT_AFTER_VM: Duration = Duration::from_secs(2);

/// Number of retries after a lost connection to the agent, and the pause between them.
const ASKS: u32 = 10;
const BETWEEN_ASKS: Duration = Duration::from_secs(1);

/// A watcher's report to the driver.
#[derive(Debug)]
pub(crate) struct Exited {
    pub(crate) container_id: String,
    /// `Err` says why the container's end is unknown.
    pub(crate) outcome: Result<ProcessExit, String>,
}

/// How long the driver may take to publish an end after the guest's report.
pub(crate) const PUBLISHED_WITHIN: Duration = Duration::from_secs(180);

/// Watches until the end, then reports to the driver. Sets `reported` once the guest has reported the end.
pub(crate) fn watch(
    live: Live,
    container_id: String,
    copiers: Copiers,
    reported: watch::Sender<bool>,
    driver: mpsc::Sender<Exited>,
) {
    let span = spans::watcher(&container_id);
    let watching = async move {
        let outcome = follow(&live, &container_id, copiers, &reported).await;
        // If the driver is gone, it needs no report.
        let _ = driver.send(Exited { container_id, outcome }).await;
    };
    tokio::spawn(logged(span, watching));
}

async fn follow(
    live: &Live,
    id: &str,
    mut copiers: Copiers,
    reported: &watch::Sender<bool>,
) -> Result<ProcessExit, String> {
    let known = OnceLock::new();
    let ended = async {
        let outcome = wait(live, id).await?;
        let _ = known.set(outcome);
        reported.send_replace(true);
        if tokio::time::timeout(OUTPUT_AFTER_EXIT, copiers.finished()).await.is_err() {
            let killing = kill::kill(live, id);
            if !matches!(tokio::time::timeout(KILLED_WITHIN, killing).await, Ok(Ok(()))) {
                tracing::debug!(container = id, "processes remain after their container's end");
            }
            if tokio::time::timeout(LOGGED_WITHIN, copiers.finished()).await.is_err() {
                tracing::warn!(
                    container = id,
                    "a log does not take the last output; the end is published before it"
                );
                copiers.let_go();
                return Ok(outcome);
            }
        }
        Ok(outcome)
    };
    tokio::select! {
        biased;
        outcome = ended => outcome,
        report = live.vm.stopped() => {
            // The agent may have reported the end before the VM ended, and the copiers may still drain.
            let _ = tokio::time::timeout(OUTPUT_AFTER_VM, copiers.finished()).await;
            known.get().copied().ok_or_else(|| live.why_ended(&report))
        }
    }
}

/// Asks the agent for the end, again after a broken connection: each call makes a new connection if
/// necessary. If the agent stays unreachable, its VM is given up: its containers' ends could never be
/// observed.
async fn wait(live: &Live, id: &str) -> Result<ProcessExit, String> {
    let mut asked = 0;
    loop {
        let error = match live.agent.wait(id, "").await {
            Ok(outcome) => return Ok(outcome),
            Err(error) => error,
        };
        asked += 1;
        if error.kind() != BackendErrorKind::Unreachable {
            return Err(format!("the agent cannot say how the container ended: {}", chain_of(&error)));
        }
        if asked == ASKS {
            asked = 0;
            let why = format!("its agent cannot be asked how container {id} ended: {}", chain_of(&error));
            if let Err(error) = live.give_up(why).await {
                tracing::error!(
                    container = id,
                    error = error.chain(),
                    "a VM does not end after it was given up"
                );
            }
        }
        tokio::time::sleep(BETWEEN_ASKS).await;
    }
}
