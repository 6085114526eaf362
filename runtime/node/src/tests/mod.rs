//! Tests of whole installations and removals, on a directory that stands for a node's root and a systemd that is played.

mod faults;
mod installs;
mod kubelets;
mod node;
mod removals;

pub(crate) use node::Gate;
