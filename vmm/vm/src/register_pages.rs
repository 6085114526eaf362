//! The registers of all slots as guest-readable memory: one mapping, a page for each slot, and one read-only
//! memory slot in KVM. A write there exits the guest like any device access, or reaches an ioeventfd. The
//! transports write the pages; this module only makes them.

use std::sync::Arc;

use kvm_bindings::{KVM_MEM_READONLY, kvm_userspace_memory_region};
use kvm_ioctls::VmFd;
use proto_vmm::Slot;
use vm_memory::MmapRegion;
use vmm_devices::virtio::mmio::RegisterPage;

use crate::layout::{SLOT_STRIDE, SLOTS};
use crate::memory::KVM_SLOTS_RAM;

/// KVM's memory slot of the pages, after RAM's slots and one for each slot of the table.
pub(crate) const KVM_SLOT: u32 = KVM_SLOTS_RAM + Slot::COUNT as u32;

/// The pages could not be made.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs)]
pub enum RegisterPagesError {
    #[error("cannot map the registers of devices")]
    Map(#[from] vm_memory::mmap::MmapRegionError),
    #[error("cannot give the registers of devices to KVM")]
    Register(#[source] kvm_ioctls::Error),
}

/// The pages of all slots.
#[derive(Debug)]
pub(crate) struct RegisterPages(Arc<MmapRegion>);

impl RegisterPages {
    /// Makes the pages, and gives them to the guest.
    pub(crate) fn new(vm: &VmFd) -> Result<RegisterPages, RegisterPagesError> {
        let bytes = u64::from(Slot::COUNT) * SLOT_STRIDE;
        let mapping = MmapRegion::new(usize::try_from(bytes).expect("usize has 64 bits"))?;
        let region = kvm_userspace_memory_region {
            slot: KVM_SLOT,
            flags: KVM_MEM_READONLY,
            guest_phys_addr: SLOTS,
            memory_size: bytes,
            userspace_addr: mapping.as_ptr() as u64,
        };
        // SAFETY: the mapping covers exactly this range. No vCPU runs before the transports keep it. The `Vm`
        // keeps the transports, and drops its vCPUs first.
        unsafe { vm.set_user_memory_region(region) }.map_err(RegisterPagesError::Register)?;
        Ok(RegisterPages(Arc::new(mapping)))
    }

    /// The page of a slot.
    pub(crate) fn page(&self, slot: Slot) -> RegisterPage {
        RegisterPage::new(Arc::clone(&self.0), usize::from(slot.number()))
    }
}
