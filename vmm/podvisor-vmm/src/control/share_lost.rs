//! The share's end before the VM's: a guest whose volumes are gone cannot go on.

use proto_vmm::StopReason;

use super::Control;

impl Control {
    /// The reason to end the VM for.
    pub(super) fn share_lost(&self) -> StopReason {
        let reason = self.share.as_ref().map(vmm_vm::ShareLink::reason).unwrap_or_default();
        StopReason::Vmm { message: format!("the share of the pod's volumes was lost: {reason}") }
    }
}
