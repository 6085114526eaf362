//! Boot: builds the VM, plugs its first devices and lets it run.

use std::fs::File;
use std::os::fd::AsFd as _;

use proto_vmm::{BootConfig, Refusal, Response, Slot};
use vmm_vm::{Backends, BlankVm, BlankVmError, Vm, VmConfig, monotonic_ns};

use super::answer::{Answer, refusal};
use super::descriptors::Descriptors;
use super::{Booted, Control, Source};
use crate::error_chain::chain;

/// Slots needed for an agent to start.
const NEEDED: [Slot; 3] = [Slot::ROOT, Slot::VSOCK, Slot::RNG];

/// Sizes of a VM, as its request names them.
#[derive(Clone, Copy)]
pub(super) struct Size {
    /// vCPUs known to the guest.
    pub(super) vcpus: u8,
    /// vCPUs to make before the guest runs. 0 means all, from daemons without a way to ask for them later.
    pub(super) vcpus_at_boot: u8,
    pub(super) memory_bytes: u64,
    pub(super) memory_max_bytes: u64,
}

impl Control {
    pub(super) fn boot(&mut self, request: BootConfig, descriptors: &mut Descriptors) -> Answer {
        let boot_requested_ns = monotonic_ns();
        if self.booted.is_some() {
            return Err(refusal("the VM is booted already"));
        }
        if let Some(slot) = NEEDED.iter().find(|slot| !request.devices.iter().any(|(s, _)| s == *slot)) {
            let kind = slot.kind().map_or_else(String::new, |kind| kind.to_string());
            return Err(refusal(format!("a boot without the {kind} device of slot {slot}")));
        }
        tracing::info!(pod = request.id, vcpus = request.vcpus, memory = request.memory_bytes, "boot");
        let config = self.vm_config(Size {
            vcpus: request.vcpus,
            vcpus_at_boot: request.vcpus_at_boot,
            memory_bytes: request.memory_bytes,
            memory_max_bytes: request.memory_max_bytes,
        });
        let kernel = File::from(descriptors.take(request.kernel)?);
        let blank = self.blank_vm().map_err(|error| refusal(chain(&error)))?;
        let built = Vm::build(blank, &config, &kernel, &request.cmdline);
        let mut vm = built.map_err(|error| refusal(chain(&error)))?;
        for (slot, device) in request.devices {
            let device = device.try_map(|index| descriptors.take(index))?;
            vm.plug(slot, device).map_err(|error| refusal(chain(&error)))?;
        }
        self.run_vm(vm, boot_requested_ns)?;
        Ok(Response::Booted)
    }

    /// Takes the beginning of the one VM. It was made before the jail's filter, and no other can be made
    /// after it.
    pub(super) fn blank_vm(&mut self) -> Result<BlankVm, BlankVmError> {
        std::mem::replace(&mut self.blank, Err(BlankVmError::Spent))
    }

    /// The configuration of a VM of this size, with the parts of the VMM in reach of its devices.
    pub(super) fn vm_config(&self, size: Size) -> VmConfig {
        VmConfig {
            vcpus: size.vcpus,
            vcpus_at_boot: match size.vcpus_at_boot {
                0 => size.vcpus,
                some => some,
            },
            memory_bytes: size.memory_bytes,
            memory_max_bytes: size.memory_max_bytes,
            backends: Backends {
                guest_stream: self.streams.sink(),
                share: self.share.clone(),
                full_disks: self.full_disks.clone(),
            },
            console: self.console.clone(),
        }
    }

    /// Lets the VM run, and watches it.
    pub(super) fn run_vm(&mut self, vm: Vm, boot_requested_ns: u64) -> Result<(), Refusal> {
        self.watch(vm.ended().as_fd(), Source::Ended).map_err(|error| refusal(chain(&error)))?;
        self.watch(vm.resized().as_fd(), Source::Resized).map_err(|error| refusal(chain(&error)))?;
        self.userfault = None;
        vm.resume().map_err(|error| refusal(chain(&error)))?;
        self.booted = Some(Booted { vm, boot_requested_ns });
        Ok(())
    }
}
