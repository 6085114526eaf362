//! The task that makes spares and ends them, one at a time, while no pod starts.

use std::sync::{Arc, Weak};
use std::time::Duration;

use runtime_spec::{PodSpec, TemplateScope, VmBounds};
use tokio::sync::Notify;

use super::demand::Allowance;
use super::kept::{Spare, Step};
use super::kind::SpareKind;
use super::{make, shortage};
use crate::config::StartConfig;
use crate::node::Node;
use crate::templates::{self, Absent};

/// Between two looks at spares that wait: demand passes, memory becomes short, a VM ends.
const LOOK_EVERY: Duration = Duration::from_secs(30);

/// Pause while pods start, or while a template is made.
const BUSY_PAUSE: Duration = Duration::from_millis(500);

/// Pause after a spare that could not be made.
const FAILED_PAUSE: Duration = Duration::from_secs(60);

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
                    node.spares.pause(FAILED_PAUSE);
                }
            }
        }
    }
    // Others first, and then the next step.
    Some(Duration::ZERO)
}

async fn keep(node: &Arc<Node>, kind: SpareKind, spare: Spare) {
    let id = spare.id.clone();
    match node.spares.keep(kind, spare) {
        Ok(()) => tracing::info!(id, "a VM waits for a pod"),
        Err(spare) => make::end(node, *spare).await,
    }
}

fn next(node: &Arc<Node>) -> Step {
    let allowances = allowances(&node.start.now());
    let idle = node.spares.is_empty() && allowances.is_empty();
    // Asked for only where it counts: most nodes have no spares.
    let short = !idle && shortage::is_short();
    match node.spares.next(if short { &[] } else { &allowances }) {
        Step::Wait(None) if !idle => Step::Wait(Some(LOOK_EVERY)),
        step => step,
    }
}

/// The allowances of all handlers.
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
