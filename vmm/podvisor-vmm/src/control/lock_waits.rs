//! InterruptLockWaits: ends the lock waits of killed processes in the share's device.

use proto_vmm::Response;

use super::Control;
use super::answer::Answer;

impl Control {
    /// Does not wait for the share's threads: they may be stuck in a hanging file system.
    pub(super) fn interrupt_lock_waits(&self, pids: &[u32]) -> Answer {
        if let Some(share) = &self.share {
            share.interrupt_lock_waits(pids);
        }
        Ok(Response::LockWaitsInterrupted)
    }
}
