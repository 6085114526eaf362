//! The task for making network namespaces in advance, one at a time, while no pod starts.

use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::sync::Notify;

use crate::backend::BackendError;
use crate::blocking::within;
use crate::counters;
use crate::error::PodError;
use crate::node::Node;
use crate::shortage;

/// How long making and reading a namespace may take.
const MADE_WITHIN: Duration = Duration::from_secs(60);

/// Interval between two checks: memory may become short.
const LOOK_EVERY: Duration = Duration::from_secs(30);

/// Pause while pods start.
const BUSY_PAUSE: Duration = Duration::from_millis(500);

/// Pause after a pod's network was made: others may start too, and they need the processor.
const QUIET: Duration = Duration::from_secs(1);

/// Pause after a failure to make a namespace.
const FAILED_PAUSE: Duration = Duration::from_secs(60);

/// Starts the task. It ends with the node.
pub(crate) fn begin(node: &Arc<Node>) {
    tokio::spawn(run(Arc::downgrade(node), node.spares.networks()));
}

async fn run(node: Weak<Node>, changed: Arc<Notify>) {
    loop {
        let Some(node) = node.upgrade() else { return };
        let pause = work(&node).await;
        drop(node);
        match pause {
            // A starting pod is no reason for a retry.
            FAILED_PAUSE => tokio::time::sleep(pause).await,
            _ => {
                if tokio::time::timeout(pause, changed.notified()).await.is_ok() {
                    tokio::time::sleep(QUIET).await;
                }
            }
        }
    }
}

/// Makes one namespace, or ends all. Returns how long there is nothing to do.
async fn work(node: &Arc<Node>) -> Duration {
    let network = &node.backends.network;
    let pause = if shortage::is_short() {
        network.end_spares();
        LOOK_EVERY
    } else if node.roster.is_busy() {
        BUSY_PAUSE
    } else {
        make(node).await
    };
    counters::spare_networks_waiting(network.spares());
    pause
}

async fn make(node: &Arc<Node>) -> Duration {
    const DOING: &str = "making a network namespace for the pool";
    let making = async {
        let made = node.backends.network.make_spare().await;
        made.map_err(|error: BackendError| PodError::internal(DOING).because(error))
    };
    match within(MADE_WITHIN, DOING, making).await {
        Ok(true) => Duration::ZERO,
        Ok(false) => LOOK_EVERY,
        Err(error) => {
            tracing::warn!(error = error.chain(), "pods start without such a namespace");
            FAILED_PAUSE
        }
    }
}
