//! Save and restore of a whole VM: a template for starting other VMs.
//!
//! ```text
//!   running ──save: vCPUs and devices stop, memory goes to a file──> paused, and a state of some KiB
//!      ▲                                                                │
//!      └──────────────────────────── go on ─────────────────────────────┘
//!   file and state ──restore──> a VM like the saved one, paused ──resume──> it continues from there
//! ```
//!
//! `ram` has the file, `state` the bytes beside it, `vcpu` and `vm` KVM's part; devices save themselves
//! through their transports. A restored VM maps RAM privately: the file must be sealed, and no VM ever
//! changes it. Memory plugged after the boot is copied: pages that the guest gives back must not show the
//! file again. A state is read as untrusted input. This module never decides whether a template may be used:
//! the daemon does.

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
