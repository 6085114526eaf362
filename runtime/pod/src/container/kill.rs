//! Kills a container's processes, including those waiting for a file lock of a volume. The guest's kernel
//! cannot kill such a process: the VMM holds its request, and the guest's driver cannot pass on a signal. So
//! the agent names the killed processes still there, and the VMM ends their waits.

use std::convert::Infallible;
use std::time::Duration;

use runtime_guest::SignalTarget;
use runtime_spec::Signal;

use crate::error::PodError;
use crate::live::Live;

/// Time between two kills of remaining processes. The next kill catches a process killed on its way into a
/// wait.
const AGAIN: Duration = Duration::from_millis(500);

/// Kills every process of the container.
pub(crate) async fn kill(live: &Live, id: &str) -> Result<(), PodError> {
    signal(live, "killing the container", id, SignalTarget::Container, Signal::KILL).await
}

/// Sends a signal, and interrupts the lock waits of killed processes.
pub(crate) async fn signal(
    live: &Live,
    doing: &str,
    id: &str,
    target: SignalTarget<'_>,
    signal: Signal,
) -> Result<(), PodError> {
    let signalling = live.agent.signal(id, target, signal);
    let left = live.call(doing, signalling).await?;
    if left.is_empty() {
        return Ok(());
    }
    let interrupting = live.vm.interrupt_lock_waits(&left);
    if let Err(error) = live.call("interrupting waits for file locks", interrupting).await {
        // They are killed all the same, and end when they get the lock.
        tracing::debug!(container = id, error = error.chain(), "waits for file locks are not interrupted");
    }
    Ok(())
}

/// Kills the containers' processes again and again, until this is dropped.
pub(crate) async fn keep_killing(live: &Live, ids: &[String]) -> Infallible {
    loop {
        tokio::time::sleep(AGAIN).await;
        for id in ids {
            if let Err(error) = kill(live, id).await {
                tracing::debug!(container = id, error = error.chain(), "a container is not killed again");
            }
        }
    }
}
