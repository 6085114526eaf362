//! InterruptLockWaits: has the share's device end the waits of processes that were killed.

use proto_vmm::Response;

use super::Control;
use super::answer::Answer;

impl Control {
    /// Does not wait for the share's threads, which may be at a file system that hangs.
    pub(super) fn interrupt_lock_waits(&self, pids: &[u32]) -> Answer {
        if let Some(share) = &self.share {
            share.interrupt_lock_waits(pids);
        }
        Ok(Response::LockWaitsInterrupted)
    }
}
