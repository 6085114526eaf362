//! The Node Resource Interface (NRI) as it is on the wire: messages and ttrpc services, generated.
//!
//! A runtime and a plugin share one stream with two connections ([`PLUGIN_CONNECTION`],
//! [`RUNTIME_CONNECTION`]) in frames. A frame is a `u32` with the connection's number, a `u32` with the
//! length, both big-endian, and that many bytes of the connection. Each connection is a separate ttrpc
//! connection:
//!
//! | connection | service | caller |
//! |---|---|---|
//! | [`PLUGIN_CONNECTION`] | `Plugin` | the runtime |
//! | [`RUNTIME_CONNECTION`] | `Runtime` | the plugin |
//!
//! The plugin registers. The runtime configures it, and the plugin's answer lists the events it wants. The
//! runtime sends all existing pods and containers, and then the events. Source: containerd/nri,
//! `pkg/net/multiplex`, `pkg/adaptation`, `pkg/stub`.

#![forbid(unsafe_code)]

/// Version of the public NRI with this protocol.
pub const NRI_VERSION: &str = "v0.12.2";

/// Connection for the runtime's calls to the plugin.
pub const PLUGIN_CONNECTION: u32 = 1;

/// Connection for the plugin's calls to the runtime.
pub const RUNTIME_CONNECTION: u32 = 2;

/// Name of the runtime's service.
pub const RUNTIME_SERVICE: &str = "nri.pkg.api.v1alpha1.Runtime";

/// Most bytes of a ttrpc message, without its header (containerd/ttrpc, `channel.go`).
pub const MESSAGE_BYTES_MAX: usize = 4 << 20;

/// Bytes of a ttrpc message's header.
pub const MESSAGE_HEADER_BYTES: usize = 10;

/// Default socket for plugins.
pub const DEFAULT_SOCKET: &str = "/var/run/nri/nri.sock";

/// Environment variables of a plugin started by the runtime: its name, its index, and the descriptor number
/// of its stream.
pub const NAME_VARIABLE: &str = "NRI_PLUGIN_NAME";
/// See [`NAME_VARIABLE`].
pub const INDEX_VARIABLE: &str = "NRI_PLUGIN_IDX";
/// See [`NAME_VARIABLE`].
pub const SOCKET_VARIABLE: &str = "NRI_PLUGIN_SOCKET";

/// Mark before a key, a path or a name to be removed.
pub const REMOVAL_MARK: char = '-';

/// Messages.
#[allow(warnings, clippy::all, clippy::pedantic)]
pub mod nri {
    include!(concat!(env!("OUT_DIR"), "/nri.rs"));
}

/// The ttrpc services and clients.
#[allow(
    missing_docs,
    missing_debug_implementations,
    unreachable_pub,
    unused_imports,
    clippy::all,
    clippy::pedantic,
    rustdoc::all
)]
pub mod nri_ttrpc {
    use super::nri;
    include!(concat!(env!("OUT_DIR"), "/nri_ttrpc.rs"));
}

/// Returns the name without its mark, and whether it had one.
pub fn without_mark(name: &str) -> (&str, bool) {
    match name.strip_prefix(REMOVAL_MARK) {
        Some(name) => (name, true),
        None => (name, false),
    }
}
