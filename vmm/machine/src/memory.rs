//! Guest RAM: anonymous memory in large pages where the host has them, given to KVM as one or two memory
//! slots. Never touches what lies in it.

use std::ffi::c_void;
use std::ptr::NonNull;
use std::sync::Arc;

use kvm_bindings::kvm_userspace_memory_region;
use kvm_ioctls::VmFd;
use nix::sys::mman::{MmapAdvise, madvise};
use vm_memory::{GuestAddress, GuestMemory as _, GuestMemoryMmap, GuestMemoryRegion, GuestRegionMmap};
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
    let regions: Vec<_> = ranges(bytes)
        .into_iter()
        .map(|(base, length)| (GuestAddress(base), usize::try_from(length).expect("usize has 64 bits")))
        .collect();
    let memory = GuestMemoryMmap::from_ranges(&regions)?;
    memory.iter().for_each(prefer_large_pages);
    Ok(Arc::new(memory))
}

/// Asks for 2 MiB pages: a guest's boot touches thousands of small ones, and each is an exit and a fault.
/// A host that has none (`transparent_hugepage=never`) goes on with small ones.
fn prefer_large_pages(region: &GuestRegionMmap) {
    let Some(start) = NonNull::new(region.as_ptr().cast::<c_void>()) else { return };
    let length = usize::try_from(region.len()).expect("it is mapped");
    // SAFETY: the range is the region's own mapping, whole; the advice changes no content.
    let _ = unsafe { madvise(start, length, MmapAdvise::MADV_HUGEPAGE) };
}

/// (guest base, length) of RAM's parts, below and above the MMIO gap.
fn ranges(bytes: u64) -> Vec<(u64, u64)> {
    let low = bytes.min(MMIO_GAP);
    let mut ranges = vec![(0, low)];
    if bytes > low {
        ranges.push((MMIO_GAP_END, bytes - low));
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
        assert_eq!(ranges(1 << 30), [(0, 1 << 30)]);
        assert_eq!(ranges(5 << 30), [(0, 3 << 30), (4 << 30, 2 << 30)]);
        let memory = create((3 << 30) + LARGE_PAGE).unwrap();
        assert_eq!(top(&memory), (4 << 30) + LARGE_PAGE);
    }

    #[test]
    fn odd_or_tiny_ram_is_refused() {
        assert!(matches!(create(RAM_MIN - LARGE_PAGE), Err(MemoryError::Size { .. })));
        assert!(matches!(create(RAM_MIN + 4096), Err(MemoryError::Size { .. })));
    }
}
