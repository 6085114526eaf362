//! Vcpus: makes vCPUs before the guest brings them up. A client of an older version cannot ask for them:
//! all are made when it says hello.

use proto_vmm::{Response, VCPUS_VERSION};

use super::Control;
use super::answer::{Answer, refusal};
use crate::error_chain::chain;

impl Control {
    pub(super) fn make_vcpus(&mut self, count: u8) -> Answer {
        let vm = self.vm()?;
        vm.make_vcpus(count).and_then(|()| vm.resume()).map_err(|error| refusal(chain(&error)))?;
        Ok(Response::VcpusMade)
    }

    /// Makes all of them if the client's version takes them to be there.
    pub(super) fn make_vcpus_for(&mut self, client_version: u32) -> Result<(), proto_vmm::Refusal> {
        match self.booted.as_ref().map(|booted| booted.vm.vcpus_max()) {
            Some(all) if client_version < VCPUS_VERSION => self.make_vcpus(all).map(drop),
            _ => Ok(()),
        }
    }
}
