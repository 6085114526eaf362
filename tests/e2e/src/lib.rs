//! The ground of the end-to-end tests and of the demo: a [`Host`] with a daemon of its own, a registry,
//! a CNI network, a CRI [`Client`](client::Client), and [`Traces`](traces::Traces), which finds what
//! was left behind.
//!
//! A test starts from `let Some(host) = Host::start().await else { return };` and reads as what a
//! kubelet would do. Everything here is real: nothing stands in for a part of Podvisor.

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
pub mod prometheus;
pub mod slow_device;
pub mod spec;
pub mod traces;
pub mod wait;

pub use host::Host;
