//! The share: a process of its own for the pod's shared directory. It reaches nothing else. An attacker in
//! the VMM has only the volumes' files open in the guest, and an unprivileged user. An attacker in the
//! share has no VM.
//!
//! ```text
//!   daemon ──starts──► VMM ──executes itself anew──► share
//!                       │ ◄────────── ready ──────────┤      each in a jail of its own
//!                       │ ══ link (virtio::fs::link) ═╡
//!                      ends ───────── hangs up ────► ends
//! ```
//!
//! The program is executed anew and gets other addresses: those of one process reveal nothing about the
//! other. The share ends when its control socket closes. A signal by the kernel at the VMM's end
//! (PR_SET_PDEATHSIG) would not come, because the VMM may not send root one. A share left over all the same
//! ends with the pod's cgroup.

mod serve;
mod start;

pub(crate) use serve::serve;
pub(crate) use start::{ShareProcess, start};

/// The argument to run the program as a share. The name of the guest's cache follows it.
pub(crate) const ARGUMENT: &str = "share";

/// Process name of a share.
const NAME: &str = "podvisor-share";
