//! Whether the node's running kubelet uses the daemon on a socket. It decides on pods of the class, and on
//! pods of other clients of the daemon: a kubelet ends each pod that it finds there and does not know
//! (Kubernetes, `pkg/kubelet/kubelet_pods.go`, `HandlePodCleanups`).

use std::path::Path;

use crate::host::Host;
use crate::kubelet::{self, KubeletError};
use crate::root::HostRoot;

/// The runtime of the node's running kubelet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KubeletRuntime {
    /// The daemon in question.
    Podvisor,
    /// Another runtime.
    Another,
    /// No kubelet of a known kind runs.
    Unknown,
}

/// Returns the runtime of the node's running kubelet. `socket` is the daemon's.
///
/// # Errors
/// The node's processes, the kubelet's configuration or its unit cannot be read.
pub fn kubelet_runtime(
    root: &HostRoot,
    host: &dyn Host,
    socket: &Path,
) -> Result<KubeletRuntime, KubeletError> {
    Ok(match kubelet::socket_in_use(root, host)? {
        Some(used) if kubelet::plain(&used) == kubelet::plain(socket) => KubeletRuntime::Podvisor,
        Some(_) => KubeletRuntime::Another,
        None => KubeletRuntime::Unknown,
    })
}
