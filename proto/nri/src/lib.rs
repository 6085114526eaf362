//! The Node Resource Interface (NRI) as it is on the wire: messages and ttrpc services, generated.
//!
//! A runtime and a plugin share one stream, which carries two connections ([`PLUGIN_CONNECTION`], [`RUNTIME_CONNECTION`]) in frames: a
//! `u32` with the connection's number, a `u32` with the length, both big-endian, and that many bytes of the connection. Each of the two
//! is a ttrpc connection of its own:
//!
//! | connection | service | who calls |
//! |---|---|---|
//! | [`PLUGIN_CONNECTION`] | `Plugin` | the runtime |
//! | [`RUNTIME_CONNECTION`] | `Runtime` | the plugin |
//!
//! The plugin registers; the runtime configures it, whose answer says which events the plugin wants; the runtime sends all pods and
//! containers that there are; then come the events. Source: containerd/nri, `pkg/net/multiplex`, `pkg/adaptation`, `pkg/stub`.

#![forbid(unsafe_code)]

/// Version of the public NRI whose protocol this is.
pub const NRI_VERSION: &str = "v0.12.2";

/// Connection on which the runtime calls the plugin.
pub const PLUGIN_CONNECTION: u32 = 1;

/// Connection on which the plugin calls the runtime.
pub const RUNTIME_CONNECTION: u32 = 2;

/// Name of the service that the runtime serves.
pub const RUNTIME_SERVICE: &str = "nri.pkg.api.v1alpha1.Runtime";

/// Most bytes of a ttrpc message, without its header (containerd/ttrpc, `channel.go`).
pub const MESSAGE_BYTES_MAX: usize = 4 << 20;

/// Bytes of a ttrpc message's header.
pub const MESSAGE_HEADER_BYTES: usize = 10;

/// Socket that plugins look for unless they are given another.
pub const DEFAULT_SOCKET: &str = "/var/run/nri/nri.sock";

/// Variables of a plugin that the runtime starts: its name, its index, and the number of the descriptor of its stream.
pub const NAME_VARIABLE: &str = "NRI_PLUGIN_NAME";
/// See [`NAME_VARIABLE`].
pub const INDEX_VARIABLE: &str = "NRI_PLUGIN_IDX";
/// See [`NAME_VARIABLE`].
pub const SOCKET_VARIABLE: &str = "NRI_PLUGIN_SOCKET";

/// Mark before a key, a path or a name that has to be removed.
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
