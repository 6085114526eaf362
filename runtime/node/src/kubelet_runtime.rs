//! Whether the node's running kubelet uses the daemon on a socket. It decides on pods of the class, and on
//! pods of other clients of the daemon: a kubelet ends each pod that it finds there and does not know
//! (Kubernetes, `pkg/kubelet/kubelet_pods.go`, `HandlePodCleanups`).

use std::path::{Path, PathBuf};

use serde::Deserialize;

use crate::kubelet::{self, K3S_OVERRIDES, KubeletError};
use crate::processes;
use crate::root::{HostRoot, RootError};

/// Processes of k3s with a kubelet inside (k3s, `cmd/k3s/main.go`).
const K3S: [&str; 2] = ["k3s-server", "k3s-agent"];

/// The configuration of k3s, read before the files that override it.
const K3S_CONFIGURATION: &str = "/etc/rancher/k3s/config.yaml";

/// The endpoint of a k3s without a configured one: its own containerd.
const K3S_ENDPOINT: &str = "/run/k3s/containerd/containerd.sock";

/// A configuration of k3s has a few dozen lines.
const BYTES_MAX: u64 = 1 << 20;

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
/// The node's processes or the kubelet's configuration cannot be read.
pub fn kubelet_runtime(root: &HostRoot, socket: &Path) -> Result<KubeletRuntime, KubeletError> {
    let used = match kubelet::socket_in_use(root)? {
        Some(used) => Some(used),
        None => k3s_socket(root)?,
    };
    Ok(match used {
        Some(used) if plain(&used) == plain(socket) => KubeletRuntime::Podvisor,
        Some(_) => KubeletRuntime::Another,
        None => KubeletRuntime::Unknown,
    })
}

/// The path of a socket, one for both of its usual spellings: `/var/run` is a link to `/run`.
fn plain(socket: &Path) -> PathBuf {
    match socket.strip_prefix("/var/run") {
        Ok(rest) => Path::new("/run").join(rest),
        Err(_) => socket.to_owned(),
    }
}

/// The socket of a running k3s's kubelet. Its arguments are not in `/proc`, so the configuration has to do.
fn k3s_socket(root: &HostRoot) -> Result<Option<PathBuf>, KubeletError> {
    let mut runs = false;
    for name in K3S {
        runs |= !processes::arguments(root, name)?.is_empty();
    }
    Ok(if runs { Some(k3s_configured(root)?.unwrap_or_else(|| K3S_ENDPOINT.into())) } else { None })
}

/// The last endpoint in the files of k3s, in the order in which it reads them.
fn k3s_configured(root: &HostRoot) -> Result<Option<PathBuf>, RootError> {
    #[derive(Deserialize)]
    #[serde(rename_all = "kebab-case")]
    struct Configuration {
        container_runtime_endpoint: Option<String>,
    }
    let directory = Path::new(K3S_OVERRIDES);
    let mut names = root.names(directory)?;
    names.retain(|name| name.ends_with(".yaml") || name.ends_with(".yml"));
    names.sort();
    let mut last = None;
    for path in std::iter::once(K3S_CONFIGURATION.into()).chain(names.iter().map(|name| directory.join(name)))
    {
        let text = root.read(&path, BYTES_MAX)?.unwrap_or_default();
        // k3s itself does not start with an unreadable file.
        let read = serde_saphyr::from_str::<Configuration>(&text).ok();
        last = read.and_then(|configuration| configuration.container_runtime_endpoint).or(last);
    }
    Ok(last.as_deref().map(kubelet::socket_of))
}
