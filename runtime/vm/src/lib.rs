//! Spawns and drives a VMM: one [`Vm`] per pod, cheap to clone.
//!
//! A VMM outlives the daemon: [`Vm::attach`] finds it again by process id, start time and control socket.
//! This crate knows the control protocol (`proto-vmm`) and the VMM's process. It knows nothing of agents,
//! pods or images, and of the guest's data it reads only the console's text.
//!
//! `connection` implements the protocol, `link` replaces a lost connection, `process` watches the VMM's
//! process, `vm` joins them, `share` sends requests about the shared directory, `template` saves and
//! restores VMs, and `walls` finds the parts of a VMM's jail missing in the node's kernel.

#![forbid(unsafe_code)]

mod allowance;
mod connection;
mod descriptors;
mod end;
mod error;
mod events;
mod guest_stream;
mod link;
mod oom_score;
mod pin;
mod plan;
mod process;
mod reactor;
mod share;
mod share_process;
mod spawn;
mod streams;
mod template;
mod text;
mod vm;
mod walls;

pub use error::VmError;
pub use plan::{BootPlan, Size};
pub use proto_vmm::{
    Device, DeviceKind, DeviceStats, ExitCounts, FilledSlot, MEMORY_BYTES_MAX, Slot, StopReason, StopReport,
    VmStats, VolumeCache,
};
pub use share_process::with_volumes;
pub use spawn::Spawn;
pub use template::RestorePlan;
pub use vm::Vm;
pub use walls::{Wall, walls};
