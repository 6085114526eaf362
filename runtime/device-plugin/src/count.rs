//! The default number of devices listed by a node. Pure.

/// Most devices of a plugin. Each is an entry in the kubelet's memory, its checkpoint and every list sent to
/// it.
pub const VMS_MAX: u16 = 1000;

/// Most devices by default. A kubelet accepts 110 pods by default (`maxPods`), so VMs beyond this number
/// would never be requested.
const PODS_USUAL_MAX: u64 = 110;

/// Returns the number of VMs for a node with so much memory, if the smallest VM takes `vm_bytes` on the node.
/// It is at least one, and at most a kubelet's usual limit of pods. Larger pods declare their size in their
/// memory requests.
#[must_use]
pub fn vms_in(memory_bytes: u64, vm_bytes: u64) -> u16 {
    let vms = (memory_bytes / vm_bytes.max(1)).clamp(1, PODS_USUAL_MAX);
    u16::try_from(vms).unwrap_or(VMS_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_lists_what_its_memory_holds_but_no_more_than_a_kubelet_takes() {
        assert_eq!(vms_in(4 << 30, 80 << 20), 51);
        assert_eq!(vms_in(1 << 40, 80 << 20), 110);
        assert_eq!(vms_in(64 << 20, 80 << 20), 1);
        assert_eq!(vms_in(u64::MAX, 0), 110);
    }
}
