//! Full disks: publishes and logs how many of the pod's disks wait for free space on the node.

use super::Driver;

impl Driver {
    pub(super) fn full_disks_changed(&mut self) {
        let disks = self.full_disks.hear();
        let pod = &self.record.id;
        if disks > 0 {
            tracing::warn!(pod, disks, "the node's disk is full: writes of the pod's disks wait for room");
        } else {
            tracing::info!(pod, "writes of the pod's disks wait for room no more");
        }
        self.publish();
    }
}
