//! Slots: lists the filled slots, without kinds unknown to the client.

use proto_vmm::{FilledSlot, Response};

use super::Control;
use super::answer::Answer;

impl Control {
    pub(super) fn slots(&mut self) -> Answer {
        let version = self.client.as_ref().and_then(|client| client.version).unwrap_or(0);
        let known = |filled: &FilledSlot| filled.slot.version().max(filled.kind.version()) <= version;
        Ok(Response::Slots(self.vm()?.filled_slots().into_iter().filter(known).collect()))
    }
}
