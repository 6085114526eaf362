//! Tests of whole installations and removals, with a directory as a node's root and a fake systemd.

mod distributions;
mod faults;
mod installs;
mod kubelet_runtimes;
mod kubelets;
mod node;
mod removals;

pub(crate) use node::Gate;
