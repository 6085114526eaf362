//! Resize: offers the guest another size of memory, and reports when the guest has it.

use proto_vmm::{Event, Response};

use super::Control;
use super::answer::{Answer, refusal};
use crate::error_chain::chain;

impl Control {
    pub(super) fn resize(&mut self, memory_bytes: u64) -> Answer {
        self.vm()?.resize(memory_bytes).map_err(|error| refusal(chain(&error)))?;
        // The outcome of the last offer is outdated.
        self.resized_unsent = false;
        Ok(Response::Resizing)
    }

    /// Reports a completed resize, once the guest has the offered memory.
    pub(super) fn resized(&mut self) {
        // Another size may have been asked for meanwhile; then there is nothing to read, nor to report.
        let settled = self.booted.as_ref().is_some_and(|booted| booted.vm.resized().read().is_ok());
        self.resized_unsent |= settled;
        self.report_resized();
    }

    /// Reports it to the present client, or keeps it for the next.
    pub(super) fn report_resized(&mut self) {
        self.resized_unsent = self.resized_unsent && !self.send_event(Event::Resized);
    }
}
