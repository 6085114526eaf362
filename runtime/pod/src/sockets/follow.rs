//! Follows a container's sockets in directories: one that a program of the node makes, or makes anew, is reported to the
//! guest, whose kernel has taken the mount away with the old file. The kernel says when something comes to a directory; a
//! socket whose directory is not there is waited for from the nearest one above.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::sleep;

use super::find::Made;
use crate::backend::{BackendError, Looked};
use crate::error::chain_of;
use crate::live::Live;
use crate::node::Node;

/// Least time between two looks: other programs may use the directories as well, and a program that makes its socket sets its
/// mode a moment later.
const SETTLE: Duration = Duration::from_millis(100);

/// Pauses between tries of what failed: the first, and the longest.
const RETRY_FIRST: Duration = Duration::from_secs(1);
const RETRY_MOST: Duration = Duration::from_secs(60);

/// Follows the sockets until it is dropped, or the VM has ended.
pub(super) async fn follow(node: Arc<Node>, live: Live, container_id: String, paths: Vec<PathBuf>) {
    let following = async {
        let arrived = Arc::new(Notify::new());
        // Nothing is known at first: whatever is there is reported once, which does no harm.
        let mut reported: Option<Vec<Option<Made>>> = None;
        let mut retry = RETRY_FIRST;
        loop {
            match round(&node, &live, &container_id, &paths, &arrived, &mut reported).await {
                Ok(watches) => {
                    retry = RETRY_FIRST;
                    arrived.notified().await;
                    drop(watches);
                    sleep(SETTLE).await;
                }
                Err(error) => {
                    let error = chain_of(&error);
                    tracing::warn!(
                        container = container_id,
                        error,
                        "sockets of the node are not followed for now"
                    );
                    sleep(retry).await;
                    retry = (retry * 2).min(RETRY_MOST);
                }
            }
        }
    };
    tokio::select! {
        never = following => never,
        _ = live.vm.stopped() => {}
    }
}

/// Looks once, and reports what was not reported before. Returns the watches for what comes next.
async fn round(
    node: &Node,
    live: &Live,
    container_id: &str,
    paths: &[PathBuf],
    arrived: &Arc<Notify>,
    reported: &mut Option<Vec<Option<Made>>>,
) -> Result<Looked, BackendError> {
    // The watches are there before the look, so that nothing comes between the two.
    let looked = node.backends.sockets.look(paths.to_vec(), Arc::clone(arrived)).await?;
    if reported.as_ref() != Some(&looked.made) {
        if looked.made.iter().any(Option::is_some) {
            live.agent.attach_host_sockets(container_id).await?;
        }
        *reported = Some(looked.made.clone());
    }
    Ok(looked)
}
