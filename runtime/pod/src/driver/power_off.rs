//! Ends the pod's VM in order, because the node goes down. The pod stays, as after a reboot: not ready, with
//! its network, until a kubelet stops it.

use runtime_spans::{always, span};
use runtime_spec::ExitReason;
use tokio::time::Instant;

use super::Driver;
use crate::container::written::Written;
use crate::error::PodError;
use crate::live;
use crate::record::PodStage;

/// Why the VM has ended.
pub(crate) const NODE_DOWN: &str = "the node went down";

impl Driver {
    /// Ends all containers, lets the guest write its disks, and ends the VM. Killed containers of a VM that
    /// writes are waited for until `written_by`.
    pub(super) async fn power_off(&mut self, written_by: Instant) -> Result<(), PodError> {
        let Some(live) = self.live.clone() else { return Ok(()) };
        let written = Written::until(&*live.vm, written_by);
        always(span!("kill the containers"), self.kill_containers(&live, written)).await;
        self.shut_guest_down(&live).await;
        self.stop_sockets().await;
        live::end(&*live.vm).await?;
        self.live = None;
        self.plugs.vm_gone();
        self.status.vmm = None;
        if self.status.stage == PodStage::Ready {
            self.status.stage = PodStage::Dead;
            self.status.message = Some(NODE_DOWN.to_owned());
        }
        self.end_all(ExitReason::Error, NODE_DOWN).await;
        self.save_status().await;
        self.publish();
        Ok(())
    }
}
