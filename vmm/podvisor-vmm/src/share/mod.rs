//! The share: a process of its own that serves the pod's shared directory, and reaches nothing else. Whoever takes the VMM over has none of
//! the volumes' files but those that the guest has open, and is nobody; whoever takes the share over has no VM.
//!
//! ```text
//!   daemon ──starts──► VMM ──executes itself anew──► share
//!                       │ ◄────────── ready ──────────┤      each in a jail of its own
//!                       │ ══ link (virtio::fs::link) ═╡
//!                      ends ───────── hangs up ────► ends
//! ```
//!
//! The program is executed anew, so that addresses in one process say nothing of those in the other. The share ends when its control
//! socket does; a signal by the kernel at the VMM's end (PR_SET_PDEATHSIG) would not come, since the VMM may not send root one. What is left
//! all the same ends with the pod's cgroup.

mod serve;
mod start;

pub(crate) use serve::serve;
pub(crate) use start::{ShareProcess, start};

/// The argument by which the program is a share. The name of the guest's cache follows it.
pub(crate) const ARGUMENT: &str = "share";

/// The name by which a share is found among processes.
const NAME: &str = "podvisor-share";
