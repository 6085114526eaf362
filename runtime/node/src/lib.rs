//! Installing Podvisor on a node, and removing it, from a container that has the node's root mounted, or on the
//! node itself, with `/` as the root.
//!
//! [`install()`] and [`remove()`] go through their steps; `root.rs` changes the node's files and `host.rs` runs its programs, and nothing
//! else reaches the node. `switch.rs` and `leave.rs` are the kubelet's way to Podvisor and back. This crate knows no pods: those in VMs
//! are ended by the program that was installed.

#![forbid(unsafe_code)]

mod host;
mod install;
mod kubelet;
mod label;
mod leave;
mod look;
mod payload;
mod processes;
mod record;
mod remove;
mod report;
mod root;
mod settings;
mod short_unit;
mod switch;
#[cfg(test)]
mod tests;

pub use host::{Host, MountedHost, enter};
pub use install::{InstallSpec, install};
pub use label::Cluster;
pub use leave::{LeaveError, leave};
pub use processes::vmms;
pub use remove::{RemoveError, RemoveSpec, remove};
pub use report::{Report, Step};
pub use root::HostRoot;
pub use settings::UnnamedPods;
