//! The task that makes spares and ends them, one at a time, while no pod starts.

use std::sync::{Arc, Weak};
use std::time::Duration;

use runtime_spec::{PodSpec, TemplateScope, VmBounds};
use tokio::sync::Notify;
use tokio::time::Instant;

use super::demand::Allowance;
use super::kind::SpareKind;
use super::{Inner, Spare, make, shortage};
use crate::config::StartConfig;
use crate::counters;
use crate::node::Node;
use crate::templates::{self, Absent};

/// Between two looks at spares that wait: demand passes, memory becomes short, a VM ends.
const LOOK_EVERY: Duration = Duration::from_secs(30);

/// Pause while pods start, or while a template is made.
const BUSY_PAUSE: Duration = Duration::from_millis(500);

/// Pause after a spare that could not be made.
const FAILED_PAUSE: Duration = Duration::from_secs(60);

/// What the task does next.
#[derive(Debug)]
enum Step {
    Make(SpareKind),
    End(Spare),
    /// Nothing, for so long or until something changes.
    Wait(Option<Duration>),
}

/// Works as long as there is a node.
pub(super) async fn run(node: Weak<Node>, changed: Arc<Notify>) {
    loop {
        let Some(node) = node.upgrade() else { return };
        let pause = work(&node).await;
        drop(node);
        match pause {
            None => changed.notified().await,
            Some(pause) => {
                let _ = tokio::time::timeout(pause, changed.notified()).await;
            }
        }
    }
}

/// Makes or ends one spare, or says how long there is nothing to do.
async fn work(node: &Arc<Node>) -> Option<Duration> {
    match next(node) {
        Step::Wait(pause) => return pause,
        Step::End(spare) => {
            tracing::debug!(id = spare.id, "a spare VM is ended");
            make::end(node, spare).await;
        }
        Step::Make(_) if node.roster.is_busy() => return Some(BUSY_PAUSE),
        Step::Make(kind) => {
            let template = match templates::take(node, &kind.shape) {
                Ok(template) => template,
                Err(Absent::Wanted | Absent::UsedUp) => return Some(BUSY_PAUSE),
                Err(Absent::Failed | Absent::Full) => return Some(LOOK_EVERY),
            };
            match make::make(node, &kind, &template).await {
                Ok(spare) => keep(node, kind, spare).await,
                Err(error) => {
                    tracing::warn!(error = error.chain(), "a spare VM cannot be made; pods start without");
                    node.spares.lock().pause_until = Some(Instant::now() + FAILED_PAUSE);
                }
            }
        }
    }
    // Others first, and then the next step.
    Some(Duration::ZERO)
}

async fn keep(node: &Arc<Node>, kind: SpareKind, spare: Spare) {
    let refused = {
        let mut inner = node.spares.lock();
        if inner.closed {
            Some(spare)
        } else {
            tracing::info!(id = spare.id, "a VM waits for a pod");
            inner.waiting.push_back((kind, spare));
            counters::spares_waiting(inner.waiting.len());
            None
        }
    };
    if let Some(spare) = refused {
        make::end(node, spare).await;
    }
}

fn next(node: &Arc<Node>) -> Step {
    let allowances = allowances(&node.start.now());
    let mut inner = node.spares.lock();
    let idle = inner.waiting.is_empty() && allowances.is_empty();
    // Asked for only where it counts: most nodes have no spares.
    let short = !idle && shortage::is_short();
    let step = inner.next(if short { &[] } else { &allowances }, Instant::now());
    match step {
        Step::Wait(None) if !idle => Step::Wait(Some(LOOK_EVERY)),
        step => step,
    }
}

impl Inner {
    fn next(&mut self, allowances: &[Allowance], now: Instant) -> Step {
        if self.closed {
            return Step::Wait(None);
        }
        let mut wanted = self.demand.wanted(allowances, now);
        let mut surplus = None;
        for (place, (kind, spare)) in self.waiting.iter().enumerate() {
            let left = wanted.iter_mut().find(|(of, count)| of == kind && *count > 0);
            match left.filter(|_| !spare.is_bad(now)) {
                Some((_, count)) => *count -= 1,
                None => surplus = surplus.or(Some(place)),
            }
        }
        if let Some((_, spare)) = surplus.and_then(|place| self.waiting.remove(place)) {
            counters::spares_waiting(self.waiting.len());
            return Step::End(spare);
        }
        let Some((kind, _)) = wanted.into_iter().find(|(_, count)| *count > 0) else {
            return Step::Wait(None);
        };
        match self.pause_until.and_then(|until| until.checked_duration_since(now)) {
            Some(pause) if !pause.is_zero() => Step::Wait(Some(pause)),
            _ => Step::Make(kind),
        }
    }
}

/// What the handlers allow.
fn allowances(rules: &StartConfig) -> Vec<Allowance> {
    let handlers = rules.handlers.iter().filter(|handler| handler.spare_vms > 0);
    let allowances = handlers.map(|handler| {
        let bounds = VmBounds::of(&PodSpec::default(), handler).ok();
        // A template of one namespace is for pods that are not known yet.
        let bounds = bounds.filter(|_| handler.template == TemplateScope::Node);
        let first = bounds.and_then(|bounds| SpareKind::of(handler, "", &bounds, handler.scratch_bytes));
        Allowance { handler: handler.name.clone(), most: usize::from(handler.spare_vms), first }
    });
    allowances.collect()
}
