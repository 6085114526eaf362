//! Save: writes the VM to two files for restoring others. The VM does not run again.

use std::fs::File;
use std::os::unix::fs::FileExt as _;

use proto_vmm::{FdIndex, Response};

use super::Control;
use super::answer::{Answer, refusal};
use super::descriptors::Descriptors;
use crate::error_chain::chain;

impl Control {
    pub(super) fn save(&mut self, memory: FdIndex, state: FdIndex, descriptors: &mut Descriptors) -> Answer {
        let memory = File::from(descriptors.take(memory)?);
        let state = File::from(descriptors.take(state)?);
        let booted = self.booted.as_mut().ok_or_else(|| refusal("there is no VM yet"))?;
        let saved = booted.vm.save(&memory).map_err(|error| refusal(chain(&error)))?;
        let written = state.write_all_at(&saved, 0);
        written.map_err(|error| refusal(format!("cannot write the VM's state: {error}")))?;
        Ok(Response::Saved)
    }
}
