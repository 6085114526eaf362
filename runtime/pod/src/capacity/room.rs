//! The memory allowed by a pod's cgroups on the node, for its VM and the VMM. The kubelet creates the pod's
//! cgroup with its limit before the pod, and may change the limit while the pod runs.

use runtime_spec::Shortage;

use crate::host::cgroup::{self, MemoryLimit};
use crate::node::Node;

/// The least limit on the cgroups of a pod with this parent; `None` without one. The files are the kernel's,
/// on no disk.
pub(crate) fn limit(node: &Node, parent: &str) -> Option<MemoryLimit> {
    cgroup::memory_limit(&node.places.cgroup_root, parent)
}

/// Says how much memory is missing, and how to provide it.
pub(crate) fn describe(shortage: &Shortage, limit: &MemoryLimit) -> String {
    let mib = |bytes: u64| bytes.div_ceil(1 << 20);
    let Shortage { vm_bytes, needed_bytes, room_bytes } = *shortage;
    format!(
        "linux.cgroup_parent: the cgroup {} allows {} MiB, and the pod takes {} MiB: {} for its VM and {} for its VMM. \
         Give {} MiB more: in overhead.podFixed.memory of its RuntimeClass, or as memory limits of its containers",
        limit.cgroup,
        room_bytes >> 20,
        mib(needed_bytes),
        mib(vm_bytes),
        mib(needed_bytes.saturating_sub(vm_bytes)),
        shortage.missing_mib(),
    )
}
