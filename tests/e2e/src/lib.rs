//! The base of the end-to-end tests and of the demo: a [`Host`] with its own daemon, a registry, a CNI
//! network, a CRI [`Client`](client::Client), and [`Traces`](traces::Traces) for finding leftovers.
//!
//! A test starts from `let Some(host) = Host::start().await else { return };` and reads like a kubelet's
//! actions. Everything here is real: no part of Podvisor is replaced.

#![forbid(unsafe_code)]

pub mod built;
pub mod checked;
pub mod client;
pub mod collector;
pub mod containerd;
pub mod daemon;
mod daemon_log;
pub mod disk;
pub mod fail_points;
mod failure;
pub mod host;
pub mod http;
pub mod idle;
pub mod inventory;
pub mod kubelet_volumes;
pub mod loop_device;
pub mod memory_shortage;
pub mod network;
pub mod nfs;
pub mod numbered;
pub mod pasted;
pub mod prometheus;
pub mod slow_device;
pub mod spec;
pub mod traces;
pub mod wait;

pub use host::Host;
