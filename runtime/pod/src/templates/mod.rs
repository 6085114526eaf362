//! Templates: VMs that were booted until their agent waits, and saved. A pod whose handler allows it starts from one, and runs on
//! where the saved VM stopped; its agent is woken with a seed of its own (`agent/podvisor-agent/src/template.rs`).
//!
//! ```text
//!   a pod asks ──there is one──────────────> used, up to its bounds of age and of pods
//!        ├──first of its shape: it boots
//!        └──none, or used up──> wanted ──> read from the disk, checked ──fits──> there is one
//!                (the pod boots)               └──missing, odd──> built ──> kept on the disk
//!                                                                   └──fails──> wanted again after a while
//! ```
//!
//! A template in use is two files in memory, sealed, so that nobody can change or shorten what VMs have mapped, and read from no
//! disk that could. The files on the disk are for the next daemon, and each is checked by its digest before a guest runs on it.
//! `shape` says which pods one template is for, `kept` has those that there are, `files` has the disk, `build` the VM that is saved, `queue` the one task that
//! reads and builds, `pages` those of its memory that every guest uses, which `show` has a pod show. Nothing here is needed for a pod to start: whatever fails, pods boot.

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

/// Sweeps away what earlier daemons left half done, or all of it where no handler has templates, and asks for those that will
/// be needed first.
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

/// Makes no more templates, and ends the VM of one that is being made: the daemon stops.
pub(crate) async fn close(node: &Arc<Node>) {
    node.templates.close().await;
}

/// Asks for the templates that pods without limits of this node's handlers start from.
pub(crate) fn begin(node: &Arc<Node>) {
    let rules = node.start.now();
    for handler in rules.handlers.iter().filter(|handler| handler.template == TemplateScope::Node) {
        if let Ok(bounds) = VmBounds::of(&PodSpec::default(), handler) {
            let shape = TemplateShape::of(&bounds, "");
            node.templates.expect(&shape);
            // Nobody waits for it.
            let _ = take(node, &shape);
        }
    }
}
