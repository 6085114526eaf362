//! Stats: counters and times of the VM.

use proto_vmm::{Response, VmStats};

use super::Control;
use super::answer::{Answer, refusal};

impl Control {
    pub(super) fn stats(&self) -> Answer {
        let booted = self.booted.as_ref().ok_or_else(|| refusal("there is no VM yet"))?;
        Ok(Response::Stats(VmStats {
            exits: booted.vm.exits(),
            boot_requested_ns: booted.boot_requested_ns,
            guest_entered_ns: booted.vm.guest_entered_ns(),
            devices: booted.vm.device_stats(),
        }))
    }
}
