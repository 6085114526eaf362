//! Templates: VM snapshots, taken after a boot when the agent was waiting. A pod starts from one if its
//! handler allows it, and continues where the saved VM stopped. Its agent is woken with a seed of its own
//! (`agent/podvisor-agent/src/template.rs`).
//!
//! ```text
//!   a pod asks ──there is one──────────────> used, up to its bounds of age and of pods
//!        ├──first of its shape: it boots
//!        └──none, or used up──> wanted ──> read from the disk, checked ──fits──> there is one
//!                (the pod boots)               └──missing, odd──> built ──> kept on the disk
//!                                                                   └──fails──> wanted again after a while
//!   used up, or no good: no pod starts from it, and it is removed from the disk
//! ```
//!
//! A template in use is two sealed files in memory: pages mapped by VMs cannot be changed or truncated, and
//! are never read from a disk. The files on the disk are for the next daemon. Each is checked by its digest
//! before a guest runs on it.
//!
//! - `shape` defines the pods for a template.
//! - `kept` has the existing templates.
//! - `files` handles the disk.
//! - `build` builds the VM and saves it.
//! - `queue` is the only task for reading and building.
//! - `pages` has the template's pages used by every guest; `show` finds them by means of a pod.
//!
//! A pod can start without all this: after any failure, pods boot.

mod build;
mod files;
pub(crate) mod kept;
pub(crate) mod pages;
mod queue;
pub(crate) mod shape;
pub(crate) mod show;

use std::sync::Arc;

use runtime_spec::{PodSpec, TemplateScope, VmBounds};

use self::kept::TEMPLATES_MAX;
pub(crate) use self::kept::{Absent, Template};
pub(crate) use self::shape::TemplateShape;
use crate::blocking::blocking;
use crate::node::Node;

/// Removes unfinished work of earlier daemons, or all templates if no handler has any, and requests those
/// needed first.
pub(crate) fn open(node: &Arc<Node>) {
    let node = Arc::clone(node);
    tokio::spawn(async move {
        let wanted = node.start.now().handlers.iter().any(|handler| handler.template != TemplateScope::Off);
        let (dir, count) = (node.places.templates_dir(), if wanted { TEMPLATES_MAX } else { 0 });
        let pruning = blocking(&node.pools.state, "sweeping templates", move || files::prune(&dir, count));
        if let Err(error) = pruning.await {
            tracing::warn!(error = error.chain(), "old templates stay on the disk");
        }
        begin(&node);
        node.templates.lock().swept = true;
    });
}

/// The template for a pod of this shape; where there is none, one will be made.
pub(crate) fn take(node: &Arc<Node>, shape: &TemplateShape) -> Result<Arc<Template>, Absent> {
    node.templates.take(shape).map_err(|missing| {
        if missing.begin_work {
            tokio::spawn(queue::run(Arc::clone(node)));
        }
        missing.absent
    })
}

/// A pod's start from the template of this shape has failed: no other pod starts from it, on this daemon or
/// the next one.
pub(crate) fn discard(node: &Arc<Node>, shape: &TemplateShape, template: &Arc<Template>) {
    if node.templates.discard(shape, template) {
        tokio::spawn(queue::run(Arc::clone(node)));
    }
}

/// Makes no more templates, and ends the VM of one being made: the daemon stops.
pub(crate) async fn close(node: &Arc<Node>) {
    node.templates.close().await;
}

/// Requests the templates for pods without limits, for each of this node's handlers.
pub(crate) fn begin(node: &Arc<Node>) {
    let rules = node.start.now();
    for handler in rules.handlers.iter().filter(|handler| handler.template == TemplateScope::Node) {
        if let Ok(bounds) = VmBounds::of(&PodSpec::default(), handler) {
            let shape = TemplateShape::of(&bounds, "");
            node.templates.expect(&shape);
            // It is made in the background.
            let _ = take(node, &shape);
        }
    }
}
