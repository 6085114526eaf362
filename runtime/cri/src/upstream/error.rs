//! The reasons for which an upstream is not used. Each has a remedy of its own.

use std::path::PathBuf;

/// An upstream that cannot be used as it is.
#[derive(Debug, thiserror::Error)]
pub enum UpstreamError {
    /// It does not know CRI, such as a containerd with this plugin disabled. It counts as down.
    #[error("the runtime at {} answers, but does not know CRI v1", socket.display())]
    NoCri {
        /// Path of the upstream's CRI socket.
        socket: PathBuf,
    },
    /// Its images are on another file system than ours. No daemon serves with it.
    #[error("the runtime at {}: {why}", socket.display())]
    Images {
        /// Path of the upstream's CRI socket.
        socket: PathBuf,
        /// Both places, for people.
        why: String,
    },
    /// Its cgroup driver is not the configured one. It counts as down, and pods in VMs go on.
    #[error("the runtime at {}: {why}", socket.display())]
    CgroupDriver {
        /// Path of the upstream's CRI socket.
        socket: PathBuf,
        /// Both drivers, for people.
        why: String,
    },
}
