//! Unplug: empties a slot after the agent has unbound it.

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
