//! Boot: builds the VM, plugs the devices that it starts with, and lets it run.

use std::fs::File;
use std::os::fd::AsFd as _;

use proto_vmm::{BootConfig, Response, Slot};
use vmm_vm::{Backends, Vm, VmConfig, monotonic_ns};

use super::answer::{Answer, refusal};
use super::descriptors::Descriptors;
use super::{Booted, Control, Source};
use crate::error_chain::chain;

/// Slots without which no agent can start.
const NEEDED: [Slot; 3] = [Slot::ROOT, Slot::VSOCK, Slot::RNG];

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
        let config = VmConfig {
            vcpus: request.vcpus,
            vcpus_at_boot: match request.vcpus_at_boot {
                0 => request.vcpus,
                some => some,
            },
            memory_bytes: request.memory_bytes,
            memory_max_bytes: request.memory_max_bytes,
            kernel: File::from(descriptors.take(request.kernel)?),
            cmdline: request.cmdline,
            backends: Backends {
                guest_stream: self.streams.sink(),
                share: self.share.clone(),
                full_disks: self.full_disks.clone(),
            },
            console: self.console.clone(),
        };
        let mut vm = Vm::build(&self.kvm, config).map_err(|error| refusal(chain(&error)))?;
        for (slot, device) in request.devices {
            let device = device.try_map(|index| descriptors.take(index))?;
            vm.plug(slot, device).map_err(|error| refusal(chain(&error)))?;
        }
        self.watch(vm.ended().as_fd(), Source::Ended).map_err(|error| refusal(chain(&error)))?;
        self.watch(vm.resized().as_fd(), Source::Resized).map_err(|error| refusal(chain(&error)))?;
        vm.resume().map_err(|error| refusal(chain(&error)))?;
        self.booted = Some(Booted { vm, boot_requested_ns });
        Ok(Response::Booted)
    }
}
