//! The task that asks guests for cached memory while the node is short of it.
//!
//! Files read by a pod of another runtime lie in the node's own page cache, and the node's kernel reclaims
//! them as needed. A guest has its files in its RAM. The node's kernel can neither see into it nor reclaim it
//! without swap, so the guest is asked. The guest gives back half of its cache each time, and its balloon
//! reports the pages as free.

use std::sync::{Arc, Weak};
use std::time::Duration;

use crate::blocking::within;
use crate::counters;
use crate::live::Live;
use crate::node::Node;
use crate::shortage;

/// Interval between two checks of the node's memory, equal to the period of the kernel's average of stalls.
const LOOK_EVERY: Duration = Duration::from_secs(10);

/// How long a guest may take to give back cached memory, before the next is asked.
const GIVEN_BACK_WITHIN: Duration = Duration::from_secs(5);

/// Starts the task. It ends with the node.
pub(crate) fn begin(node: &Arc<Node>) {
    tokio::spawn(run(Arc::downgrade(node)));
}

async fn run(node: Weak<Node>) {
    let mut asked_before = false;
    loop {
        tokio::time::sleep(LOOK_EVERY).await;
        let Some(node) = node.upgrade() else { return };
        let short = shortage::is_short();
        if short && !asked_before {
            tracing::warn!("the node is short of memory; guests are asked for cached memory");
        }
        if short {
            from_guests(&node, shortage::is_short).await;
        }
        asked_before = short;
    }
}

/// Asks one guest after another while memory `is_short`. An unresponsive guest keeps its cache.
pub(crate) async fn from_guests(node: &Node, is_short: impl Fn() -> bool) {
    for id in node.roster.pod_ids() {
        let Some(live) = node.roster.pod(&id).and_then(|entry| entry.live) else { continue };
        if !is_short() {
            return;
        }
        let bytes = from_guest(&id, &live).await;
        counters::guest_cache_reclaimed(bytes);
    }
}

async fn from_guest(id: &str, live: &Live) -> u64 {
    const DOING: &str = "asking the guest for cached memory";
    match within(GIVEN_BACK_WITHIN, DOING, live.call(DOING, live.agent.reclaim())).await {
        Ok(bytes) => {
            tracing::debug!(id, bytes, "a guest gave back cached memory");
            bytes
        }
        // Also an agent of an earlier build without this call.
        Err(error) => {
            tracing::debug!(id, error = error.chain(), "a guest keeps its cached memory");
            0
        }
    }
}
