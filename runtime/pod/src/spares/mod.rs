//! Spares: VMs that went on from a template, and wait for their pods with all done that is the same for every pod.
//!
//! ```text
//!   a pod asks ─┬─ a spare of its kind waits ──> claimed: the pod has its id, its VM and its scratch disk
//!               └─ none ──> the pod starts from the template, or boots        (a claim waits for nothing)
//!   the task, while no pod starts:  too few ──> a spare is made        too many, old, dead, or
//!                                                                      memory is short ──> one is ended
//! ```
//!
//! `kind` says which pods a spare is for, `demand` how many of each are wanted, `make` makes one and ends one, `shortage` looks at the
//! node's memory. Nothing here is needed for a pod to start. A daemon that is killed leaves VMs without a pod behind
//! ([`crate::unclaimed`]), which the next one takes away.

mod demand;
mod kind;
mod make;
mod shortage;
mod task;

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures::FutureExt;
use tokio::sync::Notify;
use tokio::time::Instant;

use self::demand::Demand;
pub(crate) use self::kind::SpareKind;
use crate::backend::{Agent, GuestReleases, Vm};
use crate::counters;
use crate::installation::Builds;
use crate::node::Node;

/// Age at which a spare is ended, and another made from the template of then.
const AGE_MAX: Duration = Duration::from_secs(24 * 3600);

/// A VM that waits for its pod.
#[derive(Debug)]
pub(crate) struct Spare {
    /// The id of the pod that will have it.
    pub(crate) id: String,
    pub(crate) vm: Arc<dyn Vm>,
    pub(crate) agent: Arc<dyn Agent>,
    pub(crate) releases: GuestReleases,
    /// Builds of the files that it was started from.
    pub(crate) builds: Builds,
    made: Instant,
}

impl Spare {
    /// Whether no pod should get it any more.
    fn is_bad(&self, now: Instant) -> bool {
        now.duration_since(self.made) >= AGE_MAX || self.vm.stopped().now_or_never().is_some()
    }
}

/// The node's spares.
#[derive(Debug, Default)]
pub(crate) struct Spares {
    inner: Mutex<Inner>,
    /// Notified when there may be something to do.
    changed: Arc<Notify>,
}

#[derive(Debug, Default)]
struct Inner {
    /// Spares that wait, the oldest first.
    waiting: VecDeque<(SpareKind, Spare)>,
    demand: Demand,
    /// Until when none is made after one could not be.
    pause_until: Option<Instant>,
    /// Whether the daemon ends, and has no use for any.
    closed: bool,
}

impl Spares {
    /// Takes a spare of this kind for a pod, which has its id from then on. That one was asked for counts, whether there is one or
    /// not.
    pub(crate) fn claim(&self, kind: &SpareKind) -> Option<Spare> {
        let now = Instant::now();
        let mut inner = self.lock();
        inner.demand.asked(kind, now);
        let fits = |(of, spare): &(SpareKind, Spare)| of == kind && !spare.is_bad(now);
        let found = inner.waiting.iter().position(fits).and_then(|place| inner.waiting.remove(place));
        counters::spares_waiting(inner.waiting.len());
        drop(inner);
        self.changed.notify_one();
        found.map(|(_, spare)| spare)
    }

    /// Looks anew what is wanted: the rules have changed.
    pub(crate) fn look(&self) {
        self.changed.notify_one();
    }

    /// Whether a spare waits.
    #[cfg(test)]
    pub(crate) fn waiting(&self) -> usize {
        self.lock().waiting.len()
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Begins to make spares, as the rules want them.
pub(crate) fn open(node: &Arc<Node>) {
    let (weak, changed) = (Arc::downgrade(node), Arc::clone(&node.spares.changed));
    tokio::spawn(task::run(weak, changed));
}

/// Ends all spares: the daemon stops, and nobody would claim them.
pub(crate) async fn close(node: &Arc<Node>) {
    let waiting = {
        let mut inner = node.spares.lock();
        inner.closed = true;
        std::mem::take(&mut inner.waiting)
    };
    let ending = waiting.into_iter().map(|(_, spare)| make::end(node, spare));
    futures::future::join_all(ending).await;
}
