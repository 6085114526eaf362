//! The node's kubelet, as commands with pods of their own have to know of it. A kubelet ends each pod of its
//! runtime that no API server has, within seconds.

use std::path::Path;

use runtime_node::{HostRoot, KubeletRuntime, kubelet_runtime};
use tracing::debug;

/// Returns true if a running kubelet uses the daemon on this socket, and so ends other clients' pods there.
/// It is false if that cannot be found out.
pub(crate) fn ends_pods_of_others(socket: &Path) -> bool {
    let found = HostRoot::open(Path::new("/"))
        .map_err(anyhow::Error::from)
        .and_then(|root| Ok(kubelet_runtime(&root, socket)?));
    match found {
        Ok(runtime) => runtime == KubeletRuntime::Podvisor,
        Err(error) => {
            debug!("looking for a kubelet: {error:#}");
            false
        }
    }
}
