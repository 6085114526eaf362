//! The Node Resource Interface (NRI): plugins of the node that hear of pods and containers, and change what containers are made of.
//!
//! The crate knows NRI and nothing of CRI or of Podvisor's pods: whoever uses it converts pods and containers to NRI's messages
//! ([`PodSandbox`](proto_nri::nri::PodSandbox), [`Container`](proto_nri::nri::Container)), and stands behind [`Runtime`].
//!
//! ```text
//!   socket.rs ──► join/ ─ registers, configures ──► set.rs ◄── events of pods and containers
//!   started.rs ─►      ─ synchronizes              │  in the order of indexes
//!                                                  ▼
//!                            plugin.rs: one queue for each plugin ──► ttrpc over mux.rs
//!                            merge/: what plugins ask for, as one adjustment
//! ```
//!
//! A plugin is root on the node, and not trusted with the daemon's time or memory: each answer has a deadline, everything that waits is
//! bounded, and a plugin that breaks a bound or its connection is dropped. The public reference is containerd/nri (`pkg/adaptation`).

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
