//! The task for making and ending spares, one at a time, while no pod starts.

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

/// Interval between two checks of the pool: demand passes, memory becomes short, a VM ends.
const LOOK_EVERY: Duration = Duration::from_secs(30);

/// Pause while pods start, or while a template is made.
const BUSY_PAUSE: Duration = Duration::from_millis(500);

/// Re-evaluates the wanted spares. If no handler wants spares, and none is left, there is no task.
pub(crate) fn look(node: &Arc<Node>) {
    let wanted = !allowances(&node.start.now()).is_empty();
    if node.spares.begin(wanted) {
        tokio::spawn(run(Arc::downgrade(node), node.spares.changed()));
    }
}

/// Ends all spares, including one just being made: the daemon stops, and they would stay unused.
pub(crate) async fn close(node: &Arc<Node>) {
    let ending = node.spares.close().into_iter().map(|spare| make::end(node, spare));
    tokio::join!(futures::future::join_all(ending), node.spares.task_ended());
}

/// Works as long as there is a node, and spares are wanted or left to be ended.
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

/// Makes or ends one spare, or returns the time until the next check; none if there is nothing to do until
/// the rules change.
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

/// The backoff of a kind without a template.
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

/// The allowance of VMMs, and those of all handlers. VMMs come first because they are made fastest.
fn allowances(rules: &StartConfig) -> Vec<Allowance> {
    let first = rules.handlers.first().map(SpareKind::vmm_of);
    let vmms = Allowance { handler: None, most: usize::from(rules.spare_vmms), first };
    let handlers = rules.handlers.iter().filter(|handler| handler.spare_vms > 0);
    let allowances = handlers.map(|handler| {
        let bounds = VmBounds::of(&PodSpec::default(), handler).ok();
        // Not with templates of one namespace each: the future pods' namespaces are unknown.
        let bounds = bounds.filter(|_| handler.template == TemplateScope::Node);
        let first = bounds.and_then(|bounds| VmKind::of(handler, "", &bounds, handler.scratch_bytes));
        let most = usize::from(handler.spare_vms);
        Allowance { handler: Some(handler.name.clone()), most, first: first.map(SpareKind::Vm) }
    });
    [vmms].into_iter().filter(|vmms| vmms.most > 0).chain(allowances).collect()
}
