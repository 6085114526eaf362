//! How much of a VM the node may swap. To the node all of it is one process's memory, and in the guest there
//! is no swap. So the containers' limits of swap are set together, on the pod's cgroup of the node.

use std::time::Duration;

use runtime_spec::{Resources, swap_together};

use crate::blocking::blocking_within;
use crate::error::PodError;
use crate::host::cgroup::{self, SwapMax};
use crate::node::Node;
use crate::record::PodRecord;

/// How long writing a file of a cgroup may take. The kernel only notes the number.
const SET_WITHIN: Duration = Duration::from_secs(10);

/// The bound for these containers together; `None` without containers: a pod between two of them keeps its
/// bound.
pub(super) fn bound<'a>(containers: impl Iterator<Item = &'a Resources>) -> Option<SwapMax> {
    let mut containers = containers.peekable();
    containers.peek()?;
    Some(swap_together(containers).map_or(SwapMax::Unbounded, SwapMax::Bytes))
}

/// Sets the bound on the pod's cgroup.
pub(super) async fn set(node: &Node, record: &PodRecord, max: SwapMax) -> Result<(), PodError> {
    let root = node.places.cgroup_root.clone();
    let (parent, id) = (record.spec.cgroup_parent.clone(), record.id.clone());
    let setting = move || cgroup::limit_swap(&root, &parent, &id, max);
    blocking_within(SET_WITHIN, &node.pools.kernel, "setting the VM's bound of swap", setting).await
}
