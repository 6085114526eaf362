//! The Node Resource Interface (NRI): plugins on the node that receive events of pods and containers, and
//! adjust containers.
//!
//! The crate knows NRI, but neither CRI nor Podvisor's pods. The caller converts pods and containers to NRI's
//! messages ([`PodSandbox`](proto_nri::nri::PodSandbox), [`Container`](proto_nri::nri::Container)), and
//! implements [`Runtime`].
//!
//! ```text
//!   socket.rs ──► join/ ─ registers, configures ──► set.rs ◄── events of pods and containers
//!   started.rs ─►      ─ synchronizes              │  in the order of indexes
//!                                                  ▼
//!                            plugin.rs: one queue for each plugin ──► ttrpc over mux.rs
//!                            merge/: what plugins ask for, as one adjustment
//! ```
//!
//! A plugin is root on the node, but the daemon does not trust it with its time or memory. Each answer has a
//! deadline, and every queue is bounded. A plugin that breaks a bound or its connection is dropped. The
//! public reference is containerd/nri (`pkg/adaptation`).

#![forbid(unsafe_code)]

mod config;
mod deadline;
mod error;
mod event;
#[doc(hidden)]
pub mod fuzz;
mod join;
mod merge;
mod mux;
mod name;
mod occurrence;
mod plugin;
mod runtime;
mod serve;
mod set;
mod socket;
mod started;

pub use config::NriConfig;
pub use error::NriError;
pub use mux::{Connections, Trunk, connect};
pub use name::PluginName;
pub use occurrence::Occurrence;
pub use runtime::{Known, Runtime};
pub use set::{Creation, Flight, Plugins, ServeError, Update};
