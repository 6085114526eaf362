//! Installing Podvisor on a node and removing it: from a container with the node's root mounted, or on the
//! node itself, with `/` as the root.
//!
//! [`install()`] and [`remove()`] go through their steps. Only `root.rs` (the node's files) and `host.rs`
//! (its programs) reach the node. `switch.rs` and `leave.rs` switch the kubelet to Podvisor and back. This
//! crate knows no pods: the installed program ends those in VMs.

#![forbid(unsafe_code)]

mod distribution;
mod host;
mod install;
mod kubelet;
mod kubelet_command;
mod kubelet_runtime;
mod label;
mod leave;
mod look;
mod microk8s;
mod mirrors;
mod payload;
mod processes;
mod record;
mod remove;
mod report;
mod root;
mod settings;
mod short_unit;
mod started;
mod switch;
#[cfg(test)]
mod tests;

pub use host::{Host, MountedHost, enter};
pub use install::{InstallSpec, install};
pub use kubelet::KubeletError;
pub use kubelet_runtime::{KubeletRuntime, kubelet_runtime};
pub use label::Cluster;
pub use leave::{LeaveError, leave};
pub use processes::vmms;
pub use remove::{RemoveError, RemoveSpec, remove};
pub use report::{Report, Step};
pub use root::HostRoot;
pub use settings::UnnamedPods;
