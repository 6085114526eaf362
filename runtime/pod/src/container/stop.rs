//! Stops a container: asks, waits, kills, and ends the VM if even this does not help. All this runs beside
//! the pod's driver. The driver learns of the end from the container's watcher as always. So a long grace
//! period blocks no one, and concurrent stops are fine.

use std::time::Duration;

use runtime_guest::SignalTarget;
use runtime_spans::{always, span};
use runtime_spec::Signal;
use tokio::sync::watch;

use crate::container::kill;
use crate::error::{PodError, PodErrorKind};
use crate::live::{ENDED_WITHIN, Live};
use crate::roster::ContainerEntry;
use crate::view::ContainerState;

/// How long a killed container may take to end and to flush its output.
const KILLED_WITHIN: Duration = Duration::from_secs(30);

/// Stops the container. A container that is not running counts as stopped.
pub(crate) async fn stop(
    live: Option<Live>,
    container: ContainerEntry,
    grace: Duration,
) -> Result<(), PodError> {
    let view = &container.view;
    if !matches!(view.state, ContainerState::Running | ContainerState::Unknown) {
        return Ok(());
    }
    let mut ended = container.ended.clone();
    let Some(live) = live else {
        // The VM is gone, and the driver is about to publish it.
        return wait(&mut ended, KILLED_WITHIN, &view.id).await;
    };
    if !grace.is_zero() {
        let asking = live.agent.signal(&view.id, SignalTarget::FirstProcess, Signal(view.stop_signal));
        let asked = live.call("asking the container to end", asking).await;
        match asked {
            Ok(_) => {
                let waiting = wait(&mut ended, grace, &view.id);
                if always(span!("wait for the end"), waiting).await.is_ok() {
                    return Ok(());
                }
            }
            // A kill may get through even if the request did not.
            Err(error) => tracing::debug!(container = view.id, error = error.chain(), "killing at once"),
        }
    }
    let killing = kill::kill(&live, &view.id);
    // One limit for both: a hanging agent is no reason to wait twice.
    let waiting = wait(&mut ended, KILLED_WITHIN, &view.id);
    let both = async { tokio::join!(tokio::time::timeout(KILLED_WITHIN, killing), waiting) };
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
    let seconds = KILLED_WITHIN.as_secs();
    let why = match killed {
        Ok(Ok(())) => format!("container {} did not end within {seconds} s after SIGKILL", view.id),
        Ok(Err(error)) => format!("container {} could not be killed: {}", view.id, error.chain()),
        Err(_) => format!("its agent did not kill container {} within {seconds} s", view.id),
    };
    live.give_up(why).await?;
    wait(&mut ended, ENDED_WITHIN, &view.id).await
}

async fn wait(ended: &mut watch::Receiver<bool>, bound: Duration, id: &str) -> Result<(), PodError> {
    match tokio::time::timeout(bound, ended.wait_for(|ended| *ended)).await {
        // A container removed meanwhile has ended too.
        Ok(_) => Ok(()),
        Err(_) => {
            let text = format!("container {id} has not ended within {} s", bound.as_secs_f32());
            Err(PodError::new(PodErrorKind::DeadlineExceeded, text))
        }
    }
}
