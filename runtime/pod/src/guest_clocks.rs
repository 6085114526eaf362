//! The task that sends guests the node's time, if they cannot read it themselves.
//!
//! KVM shows a guest the node's clock only if this clock counts the processor's ticks. A node that is a VM
//! itself often has another (`kvm-clock`). The guests of such a node have no time but that in requests for
//! statistics, and nobody may ask for those. Without them a guest's clock drifts by seconds a day, and
//! stays behind for ever after the node was paused.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Weak};
use std::time::Duration;

use futures::StreamExt as _;
use proto_agent::agent::{ClockReference, StatsResponse};

use crate::blocking::within;
use crate::live::Live;
use crate::node::Node;

/// Interval between two looks at the guests, equal to the agent's own between two readings of the clock.
pub(crate) const LOOK_EVERY: Duration = Duration::from_secs(32);

/// Messages for one measure of the agent. It goes by the fastest of them.
const MESSAGES: usize = 8;

/// How many looks leave a guest out that reads the node's clock: an hour. It may lose the clock when the node
/// changes its own.
const LEFT_OUT: u32 = 112;

/// How many guests are sent the time at once. A hanging one delays few others.
const AT_ONCE: usize = 8;

/// How long a guest may take for an answer. Its next messages come with the next look.
const ANSWERED_WITHIN: Duration = Duration::from_secs(2);

/// Starts the task. It ends with the node.
pub(crate) fn begin(node: &Arc<Node>) {
    tokio::spawn(run(Arc::downgrade(node)));
}

async fn run(node: Weak<Node>) {
    let mut left_out = HashMap::new();
    loop {
        tokio::time::sleep(LOOK_EVERY).await;
        let Some(node) = node.upgrade() else { return };
        look(&node, &mut left_out).await;
    }
}

/// Sends all guests the time, but those that are still left out for so many looks. Adds the guests that read
/// the node's clock to them.
async fn look(node: &Node, left_out: &mut HashMap<String, u32>) {
    let ids: HashSet<String> = node.roster.pod_ids().into_iter().collect();
    left_out.retain(|id, looks| {
        *looks = looks.saturating_sub(1);
        *looks > 0 && ids.contains(id)
    });
    let live = ids.into_iter().filter(|id| !left_out.contains_key(id)).filter_map(|id| {
        let live = node.roster.pod(&id)?.live?;
        Some((id, live))
    });
    let sending = live.map(|(id, live)| async move { send(&id, &live).await.then_some(id) });
    let reading: Vec<Option<String>> =
        futures::stream::iter(sending.collect::<Vec<_>>()).buffer_unordered(AT_ONCE).collect().await;
    left_out.extend(reading.into_iter().flatten().map(|id| (id, LEFT_OUT)));
}

/// Sends a guest the time, as often as a measure takes. Returns true if it reads the node's clock and needs
/// none.
async fn send(id: &str, live: &Live) -> bool {
    const DOING: &str = "sending the guest the node's time";
    for _ in 0..MESSAGES {
        match within(ANSWERED_WITHIN, DOING, live.call(DOING, live.agent.stats())).await {
            Ok(stats) if reads_clock(&stats) => return true,
            Ok(_) => {}
            Err(error) => {
                tracing::debug!(id, error = error.chain(), "a guest takes no time from the node");
                return false;
            }
        }
    }
    false
}

fn reads_clock(stats: &StatsResponse) -> bool {
    let reference = stats.clock.as_ref().map(|clock| clock.reference.enum_value_or_default());
    reference == Some(ClockReference::CLOCK_REFERENCE_PTP_KVM)
}
