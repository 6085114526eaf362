//! Save and restore of a VM without its devices, which save themselves through their transports. No product code
//! calls this module yet: starting VMs from a template will. Until then tests alone keep it right, and nothing else
//! of this crate depends on it but the messages of vCPU threads.

mod save;
mod vcpu;
mod vm;

pub use vcpu::{VcpuSnapshot, VcpuSnapshotError};
pub use vm::{VmSnapshot, VmSnapshotError};
