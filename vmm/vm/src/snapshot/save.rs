//! Saves a VM. It may go on afterwards.

use std::fs::File;
use std::sync::Arc;

use super::error::SaveError;
use super::format::FORMAT;
use super::ram;
use super::state::State;
use super::vcpu::{VcpuSnapshot, xsave_bytes};
use super::vm::VmSnapshot;
use crate::vcpu::SavePlan;
use crate::vm::{Vm, VmError};

impl Vm {
    /// Stops vCPUs and devices, writes the guest's memory to `memory`, an empty file, and returns the rest of
    /// the state. A restore needs both. The VM stays paused, also after an error, until it is to
    /// [`go on`](Self::go_on).
    ///
    /// # Errors
    /// A vCPU has ended, a device cannot be saved, or something cannot be read or written.
    pub fn save(&mut self, memory: &File) -> Result<Vec<u8>, SaveError> {
        self.pause()?;
        let mut slots = Vec::new();
        for &slot in self.filled.keys() {
            let mut transport = self.bus.slot(slot);
            let saved = transport.pause().and_then(|()| transport.save());
            slots.push((slot, saved.map_err(|source| SaveError::Device { slot, source })?));
        }
        let (vm, vcpus) = self.save_kvm()?;
        ram::write(&self.memory, &self.memory_hotplug, memory).map_err(SaveError::Memory)?;
        let state = State {
            format: FORMAT,
            vcpus_max: self.vcpus_max(),
            memory_bytes: self.memory_hotplug.boot_bytes(),
            memory_max_bytes: self.memory_hotplug.max_bytes(),
            memory_given_bytes: self.memory_hotplug.given_bytes(),
            cpuid: self.cpuid.as_slice().to_vec(),
            vm,
            vcpus,
            serial: self.bus.save_serial(),
            slots,
        };
        Ok(state.encode()?)
    }

    /// Lets a VM run again behind a [`save`](Self::save), also a failed one.
    ///
    /// # Errors
    /// A device or a vCPU does not go on. All others do.
    pub fn go_on(&mut self) -> Result<(), SaveError> {
        let mut outcome = Ok(());
        for &slot in self.filled.keys() {
            let resumed = self.bus.slot(slot).resume();
            outcome = outcome.and(resumed.map_err(|source| SaveError::GoOn { slot, source }));
        }
        outcome.and(self.resume().map_err(SaveError::from))
    }

    /// Returns KVM's state of a paused VM.
    pub(crate) fn save_kvm(&self) -> Result<(VmSnapshot, Vec<VcpuSnapshot>), SaveError> {
        let plan = SavePlan { msrs: Arc::clone(&self.msrs), xsave_bytes: xsave_bytes(&self.vm_fd) };
        let vcpus = self.vcpus.iter().map(|vcpu| vcpu.save(plan.clone()).map(|state| *state));
        let vcpus = vcpus.collect::<Result<_, _>>().map_err(VmError::from)?;
        Ok((VmSnapshot::save(&self.vm_fd).map_err(VmError::from)?, vcpus))
    }
}
