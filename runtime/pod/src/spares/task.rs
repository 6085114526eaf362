//! The task that makes spares and ends them, one at a time, while no pod starts.

use std::sync::{Arc, Weak};
use std::time::Duration;

use runtime_spec::{PodSpec, TemplateScope, VmBounds};
use tokio::sync::Notify;

use super::demand::Allowance;
use super::kept::{Spare, Step};
use super::kind::{SpareKind, VmKind};
use super::make;
use crate::config::StartConfig;
use crate::node::Node;
use crate::shortage;
use crate::templates::{self, Absent};

/// Between two looks at spares that wait: demand passes, memory becomes short, a VM ends.
const LOOK_EVERY: Duration = Duration::from_secs(30);

/// Pause while pods start, or while a template is made.
const BUSY_PAUSE: Duration = Duration::from_millis(500);

/// Looks anew which spares the rules want. A node whose handlers have none, and where none is left, has no task for them.
pub(crate) fn look(node: &Arc<Node>) {
    let wanted = !allowances(&node.start.now()).is_empty();
    if node.spares.begin(wanted) {
        tokio::spawn(run(Arc::downgrade(node), node.spares.changed()));
    }
}

/// Ends all spares, also one that is being made: the daemon stops, and nobody would claim them.
pub(crate) async fn close(node: &Arc<Node>) {
    let ending = node.spares.close().into_iter().map(|spare| make::end(node, spare));
    tokio::join!(futures::future::join_all(ending), node.spares.task_ended());
}

/// Works as long as there is a node, and spares that somebody wants, or that are to be ended.
async fn run(node: Weak<Node>, changed: Arc<Notify>) {
    loop {
        let Some(node) = node.upgrade() else { return };
        let Some(pause) = work(&node).await else {
            // The rules may have changed since they were read.
            look(&node);
            return;
        };
        drop(node);
        let _ = tokio::time::timeout(pause, changed.notified()).await;
    }
}

/// Makes or ends one spare, or returns how long there is nothing to do; none where that is so until the rules change.
async fn work(node: &Arc<Node>) -> Option<Duration> {
    match next(node) {
        Step::Wait(pause) => return Some(pause.unwrap_or(LOOK_EVERY)),
        Step::Rest => return None,
        Step::End(spare) => {
            tracing::debug!(id = spare.id, "a spare is ended");
            make::end(node, spare).await;
        }
        Step::Make(_) if node.roster.is_busy() => return Some(BUSY_PAUSE),
        Step::Make(kind) => {
            let made = match &kind {
                SpareKind::Vmm(volume_cache) => make::vmm(node, *volume_cache).await,
                SpareKind::Vm(vm) => match templates::take(node, &vm.shape) {
                    Ok(template) => make::vm(node, vm, template).await,
                    Err(absent) => {
                        node.spares.put_off(&kind, pause_without(absent));
                        return Some(Duration::ZERO);
                    }
                },
            };
            match made {
                Ok(spare) => keep(node, kind, spare).await,
                Err(_) if node.spares.closing.has_begun() => {}
                Err(error) => {
                    tracing::warn!(error = error.chain(), "a spare cannot be made; pods start without");
                    node.spares.pause(&kind);
                }
            }
        }
    }
    // Others first, and then the next step.
    Some(Duration::ZERO)
}

/// How long a kind waits whose template is not there.
fn pause_without(absent: Absent) -> Duration {
    match absent {
        Absent::First | Absent::Wanted | Absent::UsedUp => BUSY_PAUSE,
        Absent::Failed | Absent::Full => LOOK_EVERY,
    }
}

async fn keep(node: &Arc<Node>, kind: SpareKind, spare: Spare) {
    let (id, what) = (spare.id.clone(), kind.text());
    match node.spares.keep(kind, spare) {
        Ok(()) => tracing::info!(id, "{what} waits for a pod"),
        Err(spare) => make::end(node, *spare).await,
    }
}

fn next(node: &Arc<Node>) -> Step {
    let allowances = allowances(&node.start.now());
    if allowances.is_empty() && node.spares.rest() {
        return Step::Rest;
    }
    node.spares.next(if shortage::is_short() { &[] } else { &allowances })
}

/// The allowance of VMMs, which come first since they are made soonest, and those of all handlers.
fn allowances(rules: &StartConfig) -> Vec<Allowance> {
    let first = rules.handlers.first().map(SpareKind::vmm_of);
    let vmms = Allowance { handler: None, most: usize::from(rules.spare_vmms), first };
    let handlers = rules.handlers.iter().filter(|handler| handler.spare_vms > 0);
    let allowances = handlers.map(|handler| {
        let bounds = VmBounds::of(&PodSpec::default(), handler).ok();
        // A template of one namespace is for pods that are not known yet.
        let bounds = bounds.filter(|_| handler.template == TemplateScope::Node);
        let first = bounds.and_then(|bounds| VmKind::of(handler, "", &bounds, handler.scratch_bytes));
        let most = usize::from(handler.spare_vms);
        Allowance { handler: Some(handler.name.clone()), most, first: first.map(SpareKind::Vm) }
    });
    [vmms].into_iter().filter(|vmms| vmms.most > 0).chain(allowances).collect()
}
