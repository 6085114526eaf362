//! Finds the pages of its template used by a pod's guest, once for each template and moment. The pod waits
//! meanwhile, and a failure does not affect it.

use std::path::PathBuf;
use std::time::Duration;

use super::kept::Template;
use super::pages::{Pages, Until, count, read};
use crate::blocking::blocking_within;
use crate::node::Node;

/// How long reading the pages may take. The first pod waits for it.
const LOOKED_WITHIN: Duration = Duration::from_secs(10);

/// Notes the pages used by the guest of this VMM, if no pod has shown them yet. A failure leaves the template
/// without them.
pub(crate) async fn pages(node: &Node, template: &Template, until: Until, pid: u32) {
    if template.pages(until).get().is_some() {
        return;
    }
    let looking = move || read(&PathBuf::from(format!("/proc/{pid}")));
    let doing = "reading the pages used by a guest";
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
