//! Follows a container's sockets in directories. When a program of the node creates or recreates one, it is
//! reported to the guest: the guest's kernel has removed the mount with the old file. The kernel reports new
//! files in a directory. If a socket's directory is missing, the nearest one above is watched.

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

/// Least time between two checks. Other programs may use the directories as well, and a program sets its
/// socket's mode a moment after creating it.
const SETTLE: Duration = Duration::from_millis(100);

/// Pauses between retries after a failure: the first, and the longest.
const RETRY_FIRST: Duration = Duration::from_secs(1);
const RETRY_MOST: Duration = Duration::from_secs(60);

/// Follows the sockets until it is dropped, or the VM has ended.
pub(super) async fn follow(node: Arc<Node>, live: Live, container_id: String, paths: Vec<PathBuf>) {
    let following = async {
        let arrived = Arc::new(Notify::new());
        // Nothing is known at first: every existing socket is reported once. This does no harm.
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

/// Checks once, and reports sockets not reported before. Returns the watches for later changes.
async fn round(
    node: &Node,
    live: &Live,
    container_id: &str,
    paths: &[PathBuf],
    arrived: &Arc<Notify>,
    reported: &mut Option<Vec<Option<Made>>>,
) -> Result<Looked, BackendError> {
    // The watches exist before the check, so no change is missed.
    let looked = node.backends.sockets.look(paths.to_vec(), Arc::clone(arrived)).await?;
    if reported.as_ref() != Some(&looked.made) {
        if looked.made.iter().any(Option::is_some) {
            live.agent.attach_host_sockets(container_id).await?;
        }
        *reported = Some(looked.made.clone());
    }
    Ok(looked)
}
