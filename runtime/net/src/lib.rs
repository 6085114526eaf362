//! A pod's network: its namespace, the CNI plugins that fill it, and the taps that carry it to the VM.
//!
//! ```text
//!   host                 │ the pod's network namespace                    │ VM
//!   bridge, routes … ── veth ── eth0 ── tc ingress: redirect ──► tap0 ── virtio-net
//!                        │      eth0 ◄── redirect: tc ingress ── tap0     │ (eth0's MAC and addresses)
//! ```
//!
//! Start at [`Cni`] (`cni.rs`). Below that, `config` finds the network's plugins, `plugin` runs one,
//! `chain` runs them all, `cache` remembers what was run, `netns` makes the namespace (`spares` has some that wait), and `attach`
//! joins the interfaces there to taps and reads the addresses, routes and neighbours. `settings` finds what else
//! plugins left there. Beside that, `pod_ranges` makes a configuration from a template (`template`).
//!
//! This crate never touches a link, address or rule of the host's own namespace: that is the plugins'
//! work. Unsafe code is in `tap` alone, since no safe crate opens a tap with a virtio-net header.

#![deny(unsafe_code)]

mod asked;
mod attach;
mod cache;
mod chain;
mod cni;
mod config;
mod error;
#[doc(hidden)]
pub mod fuzz;
mod interface;
mod netns;
mod plugin;
mod pod_ranges;
mod result;
mod route;
mod settings;
mod spares;
mod spec;
mod tap;
mod template;
mod trace;

pub use cni::{Cni, CniConfig};
pub use error::NetError;
pub use interface::{PodInterface, PodNeighbour, PodNetwork, PodRoute};
pub use pod_ranges::PodRanges;
pub use settings::{PodNftTable, PodSettings, PodSysctl, SettingsPolicy};
pub use spec::PodNetworkSpec;
pub use trace::NetworkTrace;
