//! Slots: the slots that are filled.

use proto_vmm::Response;

use super::Control;
use super::answer::Answer;

impl Control {
    pub(super) fn slots(&mut self) -> Answer {
        Ok(Response::Slots(self.vm()?.filled_slots()))
    }
}
