//! Shutdown: answered, then the loop stops the VM and reports its end.

use proto_vmm::Response;

use super::Control;
use super::answer::Answer;

impl Control {
    pub(super) fn shutdown(&mut self) -> Answer {
        Ok(Response::ShuttingDown)
    }
}
