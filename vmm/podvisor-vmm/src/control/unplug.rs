//! Unplug: empties a slot that the agent has unbound.

use proto_vmm::{Response, Slot};

use super::Control;
use super::answer::{Answer, refusal};
use crate::error_chain::chain;

impl Control {
    pub(super) fn unplug(&mut self, slot: Slot) -> Answer {
        self.vm()?.unplug(slot).map_err(|error| refusal(chain(&error)))?;
        Ok(Response::Unplugged)
    }
}
