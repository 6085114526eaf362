//! The task for reading and building templates, one at a time: a node busy with starting pods has few spare
//! resources. It also removes bad ones from the disk, never while it writes one.

use std::convert::Infallible;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::kept::{TEMPLATES_MAX, Template, Work};
use super::shape::TemplateShape;
use super::{build, files};
use crate::blocking::blocking_within;
use crate::counters::{self, TemplateOutcome};
use crate::error::{PodError, chain_of};
use crate::node::Node;

/// How long reading a template from the disk, or writing it, may take.
const COPIED_WITHIN: Duration = Duration::from_secs(300);

/// How long removing a template from the disk may take.
const REMOVED_WITHIN: Duration = Duration::from_secs(60);

/// Works until no shape is wanted, and nothing is left to remove.
pub(super) async fn run(node: Arc<Node>) {
    while let Some(work) = node.templates.next() {
        let shape = match work {
            Work::Remove(shape) => {
                remove(&node, &shape).await;
                continue;
            }
            Work::Make(shape) => shape,
        };
        let made = make(&node, &shape).await;
        let mut inner = node.templates.lock();
        inner.wanted.retain(|wanted| *wanted != shape);
        if let Err(error) = made
            && !node.templates.closing.has_begun()
        {
            inner.failed(&shape, Instant::now());
            drop(inner);
            counters::template(TemplateOutcome::Failed);
            tracing::warn!(error = error.chain(), "a template cannot be made; pods of its shape boot");
        }
    }
}

/// Finds the shape's template on the disk, or builds it and writes it there.
async fn make(node: &Arc<Node>, shape: &TemplateShape) -> Result<(), PodError> {
    let key = build::key(node, shape).await?;
    let key = key.ok_or_else(|| PodError::internal("a part of the installation has no known build"))?;
    let distrusted = node.templates.lock().distrusts_disk(shape);
    let loaded = if distrusted {
        remove(node, shape).await;
        None
    } else {
        load(node, shape, &key).await?
    };
    if let Some(template) = loaded {
        keep(node, shape, template);
        counters::template(TemplateOutcome::Loaded);
        tracing::info!(key, "a template is read from the disk");
        return Ok(());
    }
    let template = build::build(node, shape).await?;
    counters::template(TemplateOutcome::Built);
    tracing::info!(key, "a template is made");
    let for_disk = template.for_disk().map_err(opened)?;
    keep(node, shape, template);
    let dir = node.places.templates_dir();
    let writing =
        move || files::write(&dir, &key, &for_disk).and_then(|()| files::prune(&dir, TEMPLATES_MAX));
    let doing = "writing a template to the disk";
    if let Err(error) = blocking_within(COPIED_WITHIN, &node.pools.state, doing, writing).await {
        tracing::warn!(
            error = error.chain(),
            "a template is kept in memory alone; the next daemon makes a new one"
        );
    }
    Ok(())
}

/// Removes the shape's template from the disk.
async fn remove(node: &Arc<Node>, shape: &TemplateShape) {
    let removing = async {
        // Without a key, no daemon reads it.
        let Some(key) = build::key(node, shape).await? else { return Ok(()) };
        let (place, pool) = (node.places.templates_dir().join(key), &node.pools.state);
        let doing = "removing a template from the disk";
        blocking_within(REMOVED_WITHIN, pool, doing, move || files::remove(&place)).await
    };
    if let Err(error) = removing.await {
        tracing::warn!(error = error.chain(), "a template that must not be used again stays on the disk");
    }
}

fn opened(error: io::Error) -> PodError {
    PodError::internal("opening a template's files in memory").because(error)
}

fn keep(node: &Arc<Node>, shape: &TemplateShape, template: Template) {
    for gone in node.templates.lock().keep(shape, template, Instant::now()) {
        tracing::debug!(?gone, "a template makes room for another");
    }
}

/// The shape's template on the disk. A damaged one is removed, and so is one that is too old.
async fn load(node: &Arc<Node>, shape: &TemplateShape, key: &str) -> Result<Option<Template>, PodError> {
    let (dir, bytes, of) = (node.places.templates_dir(), shape.memory_bytes(), key.to_owned());
    let reading = move || {
        let loaded = files::load(&dir, &of, bytes);
        if matches!(&loaded, Ok(None)) || matches!(&loaded, Ok(Some(template)) if !template.is_old()) {
            return Ok::<_, Infallible>(loaded);
        }
        if let Err(error) = files::remove(&dir.join(&of)) {
            // The next one takes its place, or is not written either.
            tracing::warn!(key = of, %error, "an unused template cannot be removed");
        }
        Ok(loaded.map(|_| None))
    };
    let doing = "reading a template from the disk";
    match blocking_within(COPIED_WITHIN, &node.pools.state, doing, reading).await? {
        Ok(template) => Ok(template),
        Err(error) => {
            counters::template(TemplateOutcome::Unfit);
            let error = chain_of(&error);
            tracing::warn!(key, error, "a template on the disk is damaged; a new one is made");
            Ok(None)
        }
    }
}
