//! A pod's network: its namespace, the CNI plugins configuring it, and the taps carrying its frames to the
//! VM.
//!
//! ```text
//!   host                 │ the pod's network namespace                    │ VM
//!   bridge, routes … ── veth ── eth0 ── tc ingress: redirect ──► tap0 ── virtio-net
//!                        │      eth0 ◄── redirect: tc ingress ── tap0     │ (eth0's MAC and addresses)
//! ```
//!
//! Start at [`Cni`] (`cni.rs`). Below it, `config` finds the network's plugins, `plugin` runs one and `chain`
//! runs them all. `cache` records them for DEL, and `leftover` ends those left running by a killed daemon.
//! `netns` creates the namespace, and `spares` holds some created in advance. `attach` joins the interfaces
//! to taps and reads the addresses, routes and neighbours. `settings` finds all other settings left by
//! plugins. `pod_ranges` writes a configuration from a template (`template`).
//!
//! This crate never touches a link, address or rule of the host's own namespace: this is the plugins' work.
//! Unsafe code is only in `tap`, because no safe crate opens a tap with a virtio-net header.

#![deny(unsafe_code)]

mod asked;
mod attach;
mod cache;
mod chain;
mod cni;
mod config;
mod dhcp;
mod error;
#[doc(hidden)]
pub mod fuzz;
mod interface;
mod leftover;
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
