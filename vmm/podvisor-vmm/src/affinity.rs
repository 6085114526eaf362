//! CPUs of the VMM and of its share: all CPUs of its cgroup, whatever the daemon is bound to.
//!
//! A process inherits its parent's affinity, and the kernel keeps one that was set through any change of
//! cgroups. A node with CPUs reserved for the system binds the daemon to them. VMs belong on all others,
//! too. The daemon binds threads later, if a pod has CPUs of its own.

use nix::errno::Errno;
use nix::sched::{CpuSet, sched_setaffinity};
use nix::unistd::Pid;

/// Allows this thread, and threads and processes that it starts, all CPUs. The kernel leaves out those
/// outside the cgroup.
pub(crate) fn widen() -> Result<(), Errno> {
    let mut all = CpuSet::new();
    for cpu in 0..CpuSet::count() {
        all.set(cpu)?;
    }
    sched_setaffinity(Pid::from_raw(0), &all)
}
