//! The VM's own state, outside its vCPUs: the paravirtual clock and the interrupt controllers. It is saved
//! while all vCPUs are paused, and restored before any runs.

use kvm_bindings::{
    KVM_IRQCHIP_IOAPIC, KVM_IRQCHIP_PIC_MASTER, KVM_IRQCHIP_PIC_SLAVE, kvm_clock_data, kvm_irqchip,
};
use kvm_ioctls::VmFd;
use serde::{Deserialize, Serialize};

const CHIPS: [u32; 3] = [KVM_IRQCHIP_PIC_MASTER, KVM_IRQCHIP_PIC_SLAVE, KVM_IRQCHIP_IOAPIC];

/// The VM's state could not be saved or restored.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs)]
pub enum VmSnapshotError {
    #[error("cannot read the VM's {part}")]
    Read { part: &'static str, source: kvm_ioctls::Error },
    #[error("cannot write the VM's {part}")]
    Write { part: &'static str, source: kvm_ioctls::Error },
}

/// Clock and interrupt controllers.
#[derive(Clone, Serialize, Deserialize)]
pub struct VmSnapshot {
    clock: kvm_clock_data,
    chips: Vec<kvm_irqchip>,
}

impl std::fmt::Debug for VmSnapshot {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("VmSnapshot").field("clock", &self.clock.clock).finish_non_exhaustive()
    }
}

impl VmSnapshot {
    /// Reads the state.
    pub fn save(vm: &VmFd) -> Result<VmSnapshot, VmSnapshotError> {
        let mut clock = vm.get_clock().map_err(|source| VmSnapshotError::Read { part: "clock", source })?;
        // The flags say how exact the reading is; KVM refuses them on the way back.
        clock.flags = 0;
        let chips = CHIPS
            .into_iter()
            .map(|chip_id| {
                let mut chip = kvm_irqchip { chip_id, ..Default::default() };
                vm.get_irqchip(&mut chip)
                    .map_err(|source| VmSnapshotError::Read { part: "interrupt controller", source })?;
                Ok(chip)
            })
            .collect::<Result<_, VmSnapshotError>>()?;
        Ok(VmSnapshot { clock, chips })
    }

    /// Writes the state to a fresh VM with its irqchip. The guest's clock continues from the moment of the
    /// save.
    pub fn restore(&self, vm: &VmFd) -> Result<(), VmSnapshotError> {
        for chip in &self.chips {
            vm.set_irqchip(chip)
                .map_err(|source| VmSnapshotError::Write { part: "interrupt controller", source })?;
        }
        vm.set_clock(&self.clock).map_err(|source| VmSnapshotError::Write { part: "clock", source })
    }

    /// Returns the guest's paravirtual clock at the save, in nanoseconds.
    #[cfg(test)]
    pub(crate) fn clock_ns(&self) -> u64 {
        self.clock.clock
    }
}
