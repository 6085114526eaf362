//! Restores a VM from another VM's saved memory and state.

use std::fs::File;
use std::os::fd::OwnedFd;

use proto_vmm::{Device, DeviceKind, PageRun, Slot};
use vmm_devices::virtio::mmio::TransportSnapshot;
use vmm_devices::virtio::pmem::PmemSnapshot;

use super::error::RestoreError;
use super::ram;
use super::state::State;
use super::vcpu::xsave_bytes;
use crate::blank_vm::{BlankVm, BlankVmError};
use crate::userfault::Userfault;
use crate::vm::{Vm, VmConfig, VmError};
use crate::{first_pages, saved_memory};

/// A saved VM, for restoring another one.
#[derive(Debug)]
pub struct Saved<'a> {
    /// The saved memory, sealed against all changes.
    pub file: File,
    /// The state saved beside the memory.
    pub state: &'a [u8],
    /// Pages the guest will write to. They are copied before it runs.
    pub first_writes: &'a [PageRun],
    /// Further pages the guest will read. KVM maps them before the guest runs.
    pub first_reads: &'a [PageRun],
    /// The means to copy many pages at once, if the node's kernel has it.
    pub userfault: Option<Userfault>,
}

impl Vm {
    /// Builds a VM of this configuration that continues where the saved one stopped. `devices` must fill
    /// exactly the slots filled in the saved VM. The number of vCPUs is the saved VM's, not `config`'s. No
    /// vCPU runs yet. `blank` is called only after the state was checked.
    ///
    /// # Errors
    /// The state is not of this VMM's format, the VM had another size, other processors or devices, or KVM
    /// refuses a part.
    pub fn restore(
        blank: impl FnOnce() -> Result<BlankVm, BlankVmError>,
        config: &VmConfig,
        saved: Saved<'_>,
        devices: Vec<(Slot, Device<OwnedFd>)>,
    ) -> Result<Vm, RestoreError> {
        let Saved { file, state, first_writes, first_reads, userfault } = saved;
        let state = State::decode(state)?;
        check_sizes(&state, config)?;
        // The memory device comes with the memory, and not from the caller.
        let is_asked = |slot: &Slot| *slot != Slot::MEM;
        let saved: Vec<Slot> = state.slots.iter().map(|(slot, _)| *slot).filter(is_asked).collect();
        let mut asked: Vec<Slot> = devices.iter().map(|(slot, _)| *slot).collect();
        asked.sort_unstable();
        if saved != asked {
            return Err(RestoreError::Slots { saved, asked });
        }
        if ![first_writes, first_reads].iter().all(|runs| first_pages::fit(runs, config.memory_bytes)) {
            return Err(RestoreError::FirstPages);
        }
        let memory = saved_memory::map(file, config.memory_bytes, state.memory_given_bytes)?;
        first_pages::copy(&memory.writable(), first_writes, userfault);
        let vcpus_at_boot = u8::try_from(state.vcpus.len()).unwrap_or(u8::MAX);
        let config = VmConfig { vcpus_at_boot, ..config.clone() };
        let mut vm = Vm::assemble(blank()?, &config, memory, |raw| {
            if raw.cpuid.as_slice() != state.cpuid {
                return Err(RestoreError::Processors);
            }
            let xsave_bytes = xsave_bytes(raw.vm);
            for (index, (vcpu, fd)) in state.vcpus.iter().zip(raw.vcpus).enumerate() {
                vcpu.restore(fd, xsave_bytes, index == 0).map_err(VmError::from)?;
            }
            if let Some(vcpu) = raw.vcpus.first() {
                first_pages::map(vcpu, raw.memory, first_writes);
                first_pages::map(vcpu, raw.memory, first_reads);
            }
            Ok(())
        })?;
        // After the local APICs, because they take the I/O APIC's pending interrupts.
        state.vm.restore(&vm.vm_fd).map_err(VmError::from)?;
        vm.bus.restore_serial(&state.serial).map_err(RestoreError::Serial)?;
        vm.expect_windows(&state.slots)?;
        for (slot, device) in devices {
            vm.plug(slot, device)?;
        }
        if state.slots.iter().any(|(slot, _)| *slot == Slot::MEM) {
            vm.plug_grown_memory(state.memory_given_bytes)?;
        }
        for (slot, snapshot) in &state.slots {
            let restored = vm.bus.slot(*slot).restore(snapshot);
            restored.map_err(|source| RestoreError::Device { slot: *slot, source })?;
        }
        ram::read_grown(&vm.memory, &vm.memory_hotplug).map_err(RestoreError::GrownContent)?;
        for (slot, _) in &state.slots {
            let resumed = vm.bus.slot(*slot).resume();
            resumed.map_err(|source| RestoreError::Device { slot: *slot, source })?;
        }
        Ok(vm)
    }
}

impl Vm {
    /// Images are mapped by the guest where they were, whatever was plugged and unplugged before.
    fn expect_windows(&mut self, slots: &[(Slot, TransportSnapshot)]) -> Result<(), RestoreError> {
        let images = slots.iter().filter(|(slot, _)| slot.kind() == Some(DeviceKind::Pmem));
        for &(slot, ref snapshot) in images {
            let place = PmemSnapshot::read(&snapshot.device);
            let place = place.map_err(|source| RestoreError::Place { slot, source })?;
            self.windows.expect(slot, place.guest_base);
        }
        Ok(())
    }

    /// Plugs the device of memory beyond that at boot, with `given` bytes of room.
    fn plug_grown_memory(&mut self, given: u64) -> Result<(), RestoreError> {
        let device = self.memory_hotplug.restore(&self.vm_fd, &self.memory, given)?;
        self.plug_memory(device)?;
        Ok(())
    }
}

/// Checks the saved VM's sizes against `config`.
fn check_sizes(state: &State, config: &VmConfig) -> Result<(), RestoreError> {
    let sizes = [
        ("vCPUs", u64::from(state.vcpus_max), u64::from(config.vcpus)),
        ("bytes of memory", state.memory_bytes, config.memory_bytes),
        ("bytes of memory at most", state.memory_max_bytes, config.memory_max_bytes),
    ];
    match sizes.into_iter().find(|(_, saved, asked)| saved != asked) {
        Some((what, saved, asked)) => Err(RestoreError::Size { what, saved, asked }),
        None => Ok(()),
    }
}
