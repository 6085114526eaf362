//! Plug: fills an empty slot of the running VM.

use proto_vmm::{Device, FdIndex, Response, Slot};

use super::Control;
use super::answer::{Answer, refusal};
use super::descriptors::Descriptors;
use crate::error_chain::chain;

impl Control {
    pub(super) fn plug(
        &mut self,
        slot: Slot,
        device: Device<FdIndex>,
        descriptors: &mut Descriptors,
    ) -> Answer {
        let device = device.try_map(|index| descriptors.take(index))?;
        self.vm()?.plug(slot, device).map_err(|error| refusal(chain(&error)))?;
        Ok(Response::Plugged)
    }
}
