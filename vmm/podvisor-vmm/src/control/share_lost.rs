//! The share's end before the VM's. A guest cannot go on without its volumes.

use proto_vmm::StopReason;

use super::Control;

impl Control {
    /// The reason for ending the VM.
    pub(super) fn share_lost(&self) -> StopReason {
        let reason = self.share.as_ref().map(vmm_vm::ShareLink::reason).unwrap_or_default();
        StopReason::Vmm { message: format!("the share of the pod's volumes was lost: {reason}") }
    }
}
