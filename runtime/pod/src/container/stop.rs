//! Stops a container: asks, waits, kills, and ends the VM if even this does not help. All this runs beside
//! the pod's driver. The driver learns of the end from the container's watcher as always. So a long grace
//! period blocks no one, and concurrent stops are fine: the container is asked once, and each stop waits for
//! its own grace.

use std::time::Duration;

use runtime_guest::SignalTarget;
use runtime_spans::{Carried, always, span};
use runtime_spec::Signal;
use tokio::sync::watch;
use tokio::time::Instant;
use tracing::Span;

use crate::command::{Asked, Command};
use crate::container::kill;
use crate::container::stop_signal::Claim;
use crate::container::watcher::PUBLISHED_WITHIN;
use crate::container::written::Written;
use crate::error::{PodError, PodErrorKind};
use crate::live::{ENDED_WITHIN, Live};
use crate::roster::{ContainerEntry, PodEntry};
use crate::slices::in_slices;
use crate::view::ContainerState;

/// How long a killed container may take to end and to flush its output.
const KILLED_WITHIN: Duration = Duration::from_secs(30);

/// A request without an answer for so long is in the guest. One that fails earlier was not delivered.
const HEARD_AFTER: Duration = Duration::from_secs(5);

/// Pause between two requests.
const BETWEEN_ASKS: Duration = Duration::from_secs(1);

/// Stops the container. A container that is not running counts as stopped.
pub(crate) async fn stop(
    pod: Option<PodEntry>,
    container: ContainerEntry,
    grace: Duration,
) -> Result<(), PodError> {
    let view = &container.view;
    if !matches!(view.state, ContainerState::Running | ContainerState::Unknown) {
        return Ok(());
    }
    let mut ended = container.ended.clone();
    let Some((pod, live)) = pod.and_then(|pod| pod.live.clone().map(|live| (pod, live))) else {
        // The VM is gone, and the driver is about to publish it.
        return wait(&mut ended, KILLED_WITHIN, &view.id).await;
    };
    if !grace.is_zero() {
        let asking = async {
            tokio::select! {
                biased;
                // A container removed meanwhile has ended, too.
                _ = ended.wait_for(|ended| *ended) => true,
                refused = ask_once(&pod, &live, &container) => {
                    // A kill may get through even if the request did not.
                    tracing::debug!(container = view.id, error = refused.chain(), "killing at once");
                    false
                }
            }
        };
        if always(span!("wait for the end"), in_slices(grace, asking)).await == Some(true) {
            return Ok(());
        }
    }
    let killing = kill::kill(&live, &view.id);
    let begun = Instant::now();
    let both = async {
        let mut written = Written::begin(&*live.vm);
        // One limit for both: a hanging agent is no reason to wait twice.
        let waiting = wait(&mut ended, KILLED_WITHIN, &view.id);
        let (killed, mut gone) = tokio::join!(tokio::time::timeout(KILLED_WITHIN, killing), waiting);
        while gone.is_err() && matches!(killed, Ok(Ok(()))) && written.goes_on(&*live.vm) {
            gone = wait(&mut ended, KILLED_WITHIN, &view.id).await;
        }
        (killed, gone)
    };
    let ids = [view.id.clone()];
    let until_gone = async {
        tokio::select! {
            biased;
            outcome = both => outcome,
            never = kill::keep_killing(&live, &ids) => match never {},
        }
    };
    let (killed, gone) = always(span!("kill"), until_gone).await;
    if gone.is_ok() {
        return Ok(());
    }
    if *container.reported.borrow() {
        // Its processes are gone. A log that hangs is no reason to end the VM.
        return wait(&mut ended, PUBLISHED_WITHIN, &view.id).await;
    }
    let seconds = begun.elapsed().as_secs();
    let why = match killed {
        Ok(Ok(())) => format!("container {} did not end within {seconds} s after SIGKILL", view.id),
        Ok(Err(error)) => format!("container {} could not be killed: {}", view.id, error.chain()),
        Err(_) => format!("its agent did not kill container {} within {seconds} s", view.id),
    };
    live.give_up(why).await?;
    wait(&mut ended, ENDED_WITHIN, &view.id).await
}

/// Asks the container to end, unless it was asked before, and returns only if its agent refuses.
async fn ask_once(pod: &PodEntry, live: &Live, container: &ContainerEntry) -> PodError {
    let view = &container.view;
    let Some(mut claim) = container.asked.claim() else {
        tracing::debug!(container = view.id, "a container has had its stop signal before");
        return std::future::pending().await;
    };
    if let Err(refused) = ask(live, &view.id, Signal(view.stop_signal), &mut claim).await {
        return refused;
    }
    let command = Command::NoteStopSignal(view.id.clone());
    let asked = Asked { command, call: Carried::here(), waiting: Span::none() };
    // A driver that is gone has no container to ask again.
    let _ = pod.commands.send(asked).await;
    std::future::pending().await
}

/// Asks the container to end, until it has heard the request or its agent refuses. A guest that stands still
/// may answer after its node has work for it again: until then its grace goes on, as if it had heard the
/// request.
async fn ask(live: &Live, id: &str, signal: Signal, claim: &mut Claim) -> Result<(), PodError> {
    loop {
        let begun = Instant::now();
        claim.may_be_heard = true;
        let signalling = live.agent.signal(id, SignalTarget::FirstProcess, signal);
        let Err(error) = live.call("asking the container to end", signalling).await else {
            return Ok(());
        };
        if error.kind() != PodErrorKind::Unavailable {
            claim.may_be_heard = false;
            return Err(error);
        }
        tracing::debug!(container = id, error = error.chain(), "a container may not have heard of its stop");
        if begun.elapsed() >= HEARD_AFTER {
            // The request waits in the guest.
            return Ok(());
        }
        claim.may_be_heard = false;
        tokio::time::sleep(BETWEEN_ASKS).await;
    }
}

async fn wait(ended: &mut watch::Receiver<bool>, bound: Duration, id: &str) -> Result<(), PodError> {
    match in_slices(bound, ended.wait_for(|ended| *ended)).await {
        // A container removed meanwhile has ended too.
        Some(_) => Ok(()),
        None => {
            let text = format!("container {id} has not ended within {} s", bound.as_secs_f32());
            Err(PodError::new(PodErrorKind::DeadlineExceeded, text))
        }
    }
}
