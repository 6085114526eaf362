//! The node's kubelet, as commands with pods of their own have to know of it. A kubelet ends each pod of its
//! runtime that no API server has, within seconds.

use std::path::Path;

use runtime_node::{HostRoot, KubeletRuntime, MountedHost, kubelet_runtime};
use tracing::debug;

/// Returns true if a running kubelet uses the daemon on this socket, and so ends other clients' pods there.
/// It is false if that cannot be found out.
pub(crate) fn ends_pods_of_others(socket: &Path) -> bool {
    uses(socket).unwrap_or_else(|error| {
        debug!("looking for a kubelet: {error:#}");
        false
    })
}

/// Whether the node's running kubelet uses the daemon on this socket.
///
/// # Errors
/// The node's processes, the kubelet's configuration or its unit cannot be read.
pub(crate) fn uses(socket: &Path) -> anyhow::Result<bool> {
    let here = Path::new("/");
    let (root, host) = (HostRoot::open(here)?, MountedHost::new(here, Vec::new()));
    Ok(kubelet_runtime(&root, &host, socket)? == KubeletRuntime::Podvisor)
}
