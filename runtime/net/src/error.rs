//! Errors of pods' networks. Messages name the file, plugin or link. They never repeat their source, because
//! callers print the chain.

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
    /// The directory has no `*.conflist`, `*.conf` or `*.json`.
    #[error("no CNI network configuration in {}", .dir.display())]
    NoConfig {
        /// The directory.
        dir: PathBuf,
    },
    /// A configuration file cannot be used.
    #[error("CNI configuration {}: {place}: {reason}", .file.display())]
    Config {
        /// The file.
        file: PathBuf,
        /// The wrong key or line.
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
    /// A configured plugin has no binary.
    #[error("CNI configuration {} needs plugin {plugin:?}, not found in {dirs}", .file.display())]
    PluginMissing {
        /// The plugin's type.
        plugin: String,
        /// The configuration file.
        file: PathBuf,
        /// The searched directories, joined by ':'.
        dirs: String,
    },
    /// The plugin could not be run, or its pipes broke.
    #[error("CNI plugin {plugin} {command}: cannot {action}")]
    PluginIo {
        /// The plugin's type.
        plugin: String,
        /// The CNI command.
        command: &'static str,
        /// The failed step.
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
        /// The time limit.
        after: Duration,
    },
    /// A plugin of an earlier ADD for the pod is still running, and DEL must wait for it.
    #[error("a CNI plugin of an earlier ADD, process {pid}, does not end")]
    Leftover {
        /// The process.
        pid: i32,
        /// What is known about it.
        source: io::Error,
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
    /// The plugin succeeded, but its answer breaks the CNI specification.
    #[error("CNI plugin {plugin} {command}: {reason}")]
    PluginAnswer {
        /// The plugin's type.
        plugin: String,
        /// The CNI command.
        command: &'static str,
        /// The problem with the answer, with its first bytes.
        reason: String,
    },
    /// The network namespace could not be created, entered or removed.
    #[error("network namespace {}: cannot {action}", .path.display())]
    Netns {
        /// The failed step.
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
    /// A tap could not be created.
    #[error("tap {name}: cannot {action}")]
    Tap {
        /// The tap's name.
        name: String,
        /// The failed step.
        action: &'static str,
        /// The system's error.
        source: io::Error,
    },
    /// An interface left by the plugins does not work for a VM.
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
        /// The unreadable part.
        what: &'static str,
        /// The system's error.
        source: io::Error,
    },
    /// Plugins left settings in the namespace. The VM would run without them, and the configuration refuses
    /// such a pod.
    #[error(
        "CNI plugins left settings on the node without effect in a VM, and cni.settings = {policy:?} refuses such a pod: {left}"
    )]
    SettingsRefused {
        /// The settings, each with its plugin.
        left: String,
        /// The policy's name in the configuration.
        policy: &'static str,
    },
    /// CNI's files and plugins have not answered in time.
    #[error("CNI's files and plugins have not answered for {0:?}")]
    Silent(Duration),
    /// The disk with CNI's files does not answer.
    #[error(transparent)]
    Hanging(#[from] PoolError),
    /// Setup failed, and so did undoing it. Parts of the network may be left on the node.
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
    /// Returns true if a plugin's DEL failed only because there was nothing to remove. The specification has
    /// a code for this, but many plugins use only words. containerd matches the same words.
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

    /// Formats this error and its causes on one line, for use inside another error.
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
