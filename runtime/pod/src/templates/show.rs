//! Has a pod show which pages of its template its guest has used, once for each template and moment. The pod waits meanwhile, and
//! fails for nothing of it.

use std::path::PathBuf;
use std::time::Duration;

use super::kept::Template;
use super::pages::{Pages, Until, count, read};
use crate::blocking::blocking_within;
use crate::node::Node;

/// How long the look may take, for which the first pod waits.
const LOOKED_WITHIN: Duration = Duration::from_secs(10);

/// Notes the pages that the guest of this VMM has used, if no pod has shown them yet. A template goes on without where that fails.
pub(crate) async fn pages(node: &Node, template: &Template, until: Until, pid: u32) {
    if template.pages(until).get().is_some() {
        return;
    }
    let looking = move || read(&PathBuf::from(format!("/proc/{pid}")));
    let doing = "looking at what a guest has used";
    let found = blocking_within(LOOKED_WITHIN, &node.pools.kernel, doing, looking).await;
    let shown = match found {
        Ok(pages) => {
            let (writes, reads) = (count(&pages.writes), count(&pages.reads));
            tracing::info!(?until, writes, reads, "guests of a template have pages ahead");
            pages
        }
        Err(error) => {
            tracing::info!(pid, error = error.chain(), "guests of a template have no pages ahead");
            Pages::default()
        }
    };
    let _ = template.pages(until).set(shown);
}
