//! Guest RAM: one memfd, mapped once, given to KVM as one or two memory slots. Never touches what lies
//! in it.

use std::fs::File;
use std::sync::Arc;

use kvm_bindings::kvm_userspace_memory_region;
use kvm_ioctls::VmFd;
use nix::sys::memfd::{MFdFlags, memfd_create};
use vm_memory::{
    FileOffset, GuestAddress, GuestMemory as _, GuestMemoryMmap, GuestMemoryRegion, GuestRegionMmap,
};
use vmm_devices::virtio::GuestMemory;

use crate::layout::{LARGE_PAGE, MMIO_GAP, MMIO_GAP_END};

/// Least RAM that a guest is given, in bytes: a kernel of 16 MiB at 16 MiB.
pub const RAM_MIN: u64 = 32 << 20;

/// KVM memory slots used by RAM; pmem windows follow.
pub(crate) const KVM_SLOTS_RAM: u32 = 2;

/// RAM could not be made.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs)]
pub enum MemoryError {
    #[error("guest memory of {bytes} bytes: it must be a multiple of 2 MiB and at least 32 MiB")]
    Size { bytes: u64 },
    #[error("cannot create guest memory of {bytes} bytes")]
    Create { bytes: u64, source: nix::Error },
    #[error("cannot map guest memory")]
    Map(#[from] vm_memory::mmap::FromRangesError),
    #[error("cannot give memory at {base:#x} to KVM")]
    Register { base: u64, source: kvm_ioctls::Error },
}

/// Makes zeroed RAM of `bytes`.
pub(crate) fn create(bytes: u64) -> Result<GuestMemory, MemoryError> {
    if bytes < RAM_MIN || !bytes.is_multiple_of(LARGE_PAGE) {
        return Err(MemoryError::Size { bytes });
    }
    let create = |source| MemoryError::Create { bytes, source };
    let memfd = memfd_create(c"guest-ram", MFdFlags::MFD_CLOEXEC).map_err(create)?;
    let length = i64::try_from(bytes).map_err(|_| MemoryError::Size { bytes })?;
    nix::unistd::ftruncate(&memfd, length).map_err(create)?;
    let file = Arc::new(File::from(memfd));
    let regions: Vec<_> = ranges(bytes)
        .into_iter()
        .map(|(base, length, offset)| {
            let file = FileOffset::from_arc(Arc::clone(&file), offset);
            (GuestAddress(base), usize::try_from(length).expect("usize has 64 bits"), Some(file))
        })
        .collect();
    Ok(Arc::new(GuestMemoryMmap::from_ranges_with_files(regions)?))
}

/// (guest base, length, offset in the memfd) of RAM's parts, below and above the MMIO gap.
fn ranges(bytes: u64) -> Vec<(u64, u64, u64)> {
    let low = bytes.min(MMIO_GAP);
    let mut ranges = vec![(0, low, 0)];
    if bytes > low {
        ranges.push((MMIO_GAP_END, bytes - low, low));
    }
    ranges
}

/// First address above RAM.
pub(crate) fn top(memory: &GuestMemory) -> u64 {
    memory.last_addr().0 + 1
}

/// Gives RAM to KVM.
pub(crate) fn register(vm: &VmFd, memory: &GuestMemory) -> Result<(), MemoryError> {
    for (slot, region) in (0..KVM_SLOTS_RAM).zip(memory.iter()) {
        register_region(vm, slot, region)?;
    }
    Ok(())
}

fn register_region(vm: &VmFd, slot: u32, region: &GuestRegionMmap) -> Result<(), MemoryError> {
    let base = region.start_addr().0;
    let region = kvm_userspace_memory_region {
        slot,
        flags: 0,
        guest_phys_addr: base,
        memory_size: region.len(),
        userspace_addr: region.as_ptr() as u64,
    };
    // SAFETY: the mapping covers exactly this range, and the machine keeps it until the VM is gone.
    unsafe { vm.set_user_memory_region(region) }.map_err(|source| MemoryError::Register { base, source })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ram_beyond_three_gib_goes_on_above_four() {
        assert_eq!(ranges(1 << 30), [(0, 1 << 30, 0)]);
        assert_eq!(ranges(5 << 30), [(0, 3 << 30, 0), (4 << 30, 2 << 30, 3 << 30)]);
        let memory = create((3 << 30) + LARGE_PAGE).unwrap();
        assert_eq!(top(&memory), (4 << 30) + LARGE_PAGE);
    }

    #[test]
    fn odd_or_tiny_ram_is_refused() {
        assert!(matches!(create(RAM_MIN - LARGE_PAGE), Err(MemoryError::Size { .. })));
        assert!(matches!(create(RAM_MIN + 4096), Err(MemoryError::Size { .. })));
    }
}
