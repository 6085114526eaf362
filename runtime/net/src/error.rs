//! Errors of pods' networks. Messages name the file, plugin or link; they never repeat their source, which
//! callers print as a chain.

use std::{io, path::PathBuf, time::Duration};

use runtime_blocking::PoolError;

/// A failure to set up or tear down a pod's network.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NetError {
    /// A field of the pod's spec cannot be passed to a plugin.
    #[error("pod network {field}: {reason}")]
    Spec {
        /// The field.
        field: &'static str,
        /// The problem with the field.
        reason: String,
    },
    /// No `*.conflist`, `*.conf` or `*.json` is there.
    #[error("no CNI network configuration in {}", .dir.display())]
    NoConfig {
        /// The directory that was read.
        dir: PathBuf,
    },
    /// A configuration file cannot be used.
    #[error("CNI configuration {}: {place}: {reason}", .file.display())]
    Config {
        /// The file.
        file: PathBuf,
        /// The key, or the line, that is wrong.
        place: String,
        /// The problem there.
        reason: String,
    },
    /// A file or directory could not be read or written.
    #[error("cannot {action} {}", .path.display())]
    File {
        /// "read", "write", …
        action: &'static str,
        /// The path.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// The configuration names a plugin whose binary is not there.
    #[error("CNI configuration {} needs plugin {plugin:?}, which is not in {dirs}", .file.display())]
    PluginMissing {
        /// The plugin's type.
        plugin: String,
        /// The file that names it.
        file: PathBuf,
        /// The directories that were searched, joined by ':'.
        dirs: String,
    },
    /// The plugin could not be run, or its pipes broke.
    #[error("CNI plugin {plugin} {command}: cannot {action}")]
    PluginIo {
        /// The plugin's type.
        plugin: String,
        /// The CNI command.
        command: &'static str,
        /// The step that failed.
        action: &'static str,
        /// The system's error.
        source: io::Error,
    },
    /// The plugin did not end in time and was killed with its process group.
    #[error("CNI plugin {plugin} {command}: still running after {after:?}, killed")]
    PluginTimeout {
        /// The plugin's type.
        plugin: String,
        /// The CNI command.
        command: &'static str,
        /// The time it had.
        after: Duration,
    },
    /// The plugin reported an error.
    #[error("CNI plugin {plugin} {command}: {message}")]
    Plugin {
        /// The plugin's type.
        plugin: String,
        /// The CNI command.
        command: &'static str,
        /// The error code of the CNI specification, or 0 when the plugin gave none.
        code: u32,
        /// The plugin's message, with its details or the head of its stderr.
        message: String,
    },
    /// The plugin succeeded but its answer is not what CNI says.
    #[error("CNI plugin {plugin} {command}: {reason}")]
    PluginAnswer {
        /// The plugin's type.
        plugin: String,
        /// The CNI command.
        command: &'static str,
        /// The problem with the answer, with its first bytes.
        reason: String,
    },
    /// The network namespace could not be made, entered or removed.
    #[error("network namespace {}: cannot {action}", .path.display())]
    Netns {
        /// The step that failed.
        action: &'static str,
        /// The path of the namespace's mount.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// A netlink request in the pod's namespace failed.
    #[error("{action} in the pod's network namespace failed")]
    Netlink {
        /// The request.
        action: String,
        /// The kernel's answer.
        source: rtnetlink::Error,
    },
    /// A tap could not be made.
    #[error("tap {name}: cannot {action}")]
    Tap {
        /// The tap's name.
        name: String,
        /// The step that failed.
        action: &'static str,
        /// The system's error.
        source: io::Error,
    },
    /// An interface that the plugins left in the namespace cannot be given to a VM.
    #[error("interface {name}: {reason}")]
    Interface {
        /// The interface's name in the namespace.
        name: String,
        /// The problem with the interface.
        reason: String,
    },
    /// The settings of the pod's namespace could not be read.
    #[error("cannot read {what} in the pod's network namespace")]
    Settings {
        /// The part that could not be read.
        what: &'static str,
        /// The system's error.
        source: io::Error,
    },
    /// Plugins left settings in the namespace that the VM would not have, and the configuration refuses such a pod.
    #[error(
        "CNI plugins left settings on the node that do not reach a VM, and cni.settings = {policy:?} refuses such a pod: {left}"
    )]
    SettingsRefused {
        /// The settings, each with its plugin.
        left: String,
        /// The policy's name in the configuration.
        policy: &'static str,
    },
    /// Nobody has said in time whether a pod could have a network.
    #[error("CNI's files and plugins have not answered for {0:?}")]
    Silent(Duration),
    /// The disk with CNI's files does not answer.
    #[error(transparent)]
    Hanging(#[from] PoolError),
    /// Setup failed, and so did undoing it: parts of the network may be left on the node.
    #[error("setup failed and could not be undone ({undo})")]
    Undo {
        /// The failure of setup.
        #[source]
        cause: Box<NetError>,
        /// The failure to undo it, with its causes.
        undo: String,
    },
}

impl NetError {
    /// Whether a plugin's DEL has failed since there was nothing to remove. Plugins have a code for it and use words all the same, which
    /// containerd looks for, too.
    pub(crate) fn says_gone(&self, has_netns: bool) -> bool {
        const UNKNOWN_CONTAINER: u32 = 3;
        match self {
            NetError::Plugin { code: UNKNOWN_CONTAINER, .. } => true,
            NetError::Plugin { message, .. } => {
                message.contains("not found") || (!has_netns && message.contains("no such file or directory"))
            }
            _ => false,
        }
    }

    /// Puts this error and its causes on one line, for a place where an error becomes part of another.
    pub(crate) fn chain(&self) -> String {
        let mut text = self.to_string();
        let mut next = std::error::Error::source(self);
        while let Some(cause) = next {
            text.push_str(": ");
            text.push_str(&cause.to_string());
            next = cause.source();
        }
        text
    }
}

/// Returns the first bytes of foreign output, printable and short enough for an error.
pub(crate) fn head(bytes: &[u8]) -> String {
    const SHOWN_BYTES: usize = 200;
    let shown = String::from_utf8_lossy(&bytes[..bytes.len().min(SHOWN_BYTES)]);
    let more = if bytes.len() > SHOWN_BYTES { "…" } else { "" };
    format!("{:?}{more}", shown.trim())
}
