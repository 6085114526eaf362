//! Save and restore of a whole VM: a template that other VMs start from.
//!
//! ```text
//!   running ──save: vCPUs and devices stop, RAM goes to a file──> paused for good, and a state of some KiB
//!   file and state ──restore──> a VM like the saved one, paused ──resume──> it runs on where the other stopped
//! ```
//!
//! `ram` has the file, `state` the bytes beside it, `vcpu` and `vm` what KVM keeps; devices save themselves through their
//! transports. A file that is restored from is mapped privately: it must be sealed, and no VM ever changes it. A state is
//! read as if a stranger had written it. This module never decides whether a template may be used: the daemon does.

mod error;
mod format;
mod ram;
mod restore;
mod save;
mod state;
mod vcpu;
mod vm;

pub use error::{RestoreError, SaveError};
pub use restore::Saved;
#[cfg(test)]
pub(crate) use state::State;
pub use vcpu::{VcpuSnapshot, VcpuSnapshotError};
pub use vm::{VmSnapshot, VmSnapshotError};
