//! Guest memory: anonymous memory in large pages where the host has them. RAM is given to KVM as one or two
//! memory slots; the region that the VM may grow into is address space only, until `memory_hotplug.rs` gives
//! parts of it. This module never touches the memory's content.

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

/// Most memory that a guest may be built for, in bytes: 1 TiB, what 40 bits address, far above a pod's.
const MEMORY_MAX: u64 = 1 << 40;

/// KVM memory slots used by RAM; pmem windows follow.
pub(crate) const KVM_SLOTS_RAM: u32 = 2;

/// Guest memory could not be made.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs)]
pub enum MemoryError {
    #[error("guest memory of {bytes} bytes: it must be a multiple of 2 MiB and at least 32 MiB")]
    Size { bytes: u64 },
    #[error("guest memory of at most {max} bytes, and {bytes} at boot: both must be multiples of 2 MiB")]
    Max { bytes: u64, max: u64 },
    #[error("cannot map guest memory")]
    Map(#[from] vm_memory::mmap::FromRangesError),
    #[error("cannot give memory at {base:#x} to KVM")]
    Register { base: u64, source: kvm_ioctls::Error },
}

/// Makes zeroed RAM of `bytes`, and room to grow to `max`.
pub(crate) fn create(bytes: u64, max: u64) -> Result<GuestMemory, MemoryError> {
    if bytes < RAM_MIN || !bytes.is_multiple_of(LARGE_PAGE) {
        return Err(MemoryError::Size { bytes });
    }
    if max < bytes || !max.is_multiple_of(LARGE_PAGE) || max > MEMORY_MAX {
        return Err(MemoryError::Max { bytes, max });
    }
    let regions: Vec<_> = ranges(bytes)
        .into_iter()
        .chain(room(bytes, max))
        .map(|(base, length)| (GuestAddress(base), usize::try_from(length).expect("usize has 64 bits")))
        .collect();
    let memory = GuestMemoryMmap::from_ranges(&regions)?;
    memory.iter().for_each(prefer_large_pages);
    Ok(Arc::new(memory))
}

/// Bytes in which Linux adds memory to itself: 2 GiB where there are 64 GiB or more (`probe_memory_block_size`,
/// arch/x86/mm/init_64.c).
pub(crate) fn block(ram_bytes: u64) -> u64 {
    if ram_bytes < 64 << 30 { 128 << 20 } else { 2 << 30 }
}

/// (guest base, length) of the region that RAM of `bytes` may grow into, up to `max` in all: above RAM, and
/// whole blocks, since the guest can use no others.
pub(crate) fn room(bytes: u64, max: u64) -> Option<(u64, u64)> {
    let length = max.saturating_sub(bytes).next_multiple_of(block(bytes));
    (length > 0).then(|| (ram_top(bytes).max(MMIO_GAP_END).next_multiple_of(2 << 30), length))
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

/// First address above RAM of `bytes`.
pub(crate) fn ram_top(bytes: u64) -> u64 {
    ranges(bytes).last().map_or(0, |(base, length)| base + length)
}

/// First address above all that is memory, now or once it has grown.
pub(crate) fn top(memory: &GuestMemory) -> u64 {
    memory.last_addr().0 + 1
}

/// Gives RAM of `bytes` to KVM.
pub(crate) fn register(vm: &VmFd, memory: &GuestMemory, bytes: u64) -> Result<(), MemoryError> {
    for (slot, (region, _)) in (0..KVM_SLOTS_RAM).zip(memory.iter().zip(ranges(bytes))) {
        register_part(vm, slot, region, region.start_addr().0, region.len())?;
    }
    Ok(())
}

/// Gives `length` bytes of a region, from guest address `base` on, to KVM.
pub(crate) fn register_part(
    vm: &VmFd,
    slot: u32,
    region: &GuestRegionMmap,
    base: u64,
    length: u64,
) -> Result<(), MemoryError> {
    let offset = base.checked_sub(region.start_addr().0).filter(|offset| offset + length <= region.len());
    let offset = offset.expect("the part lies in the region");
    let part = kvm_userspace_memory_region {
        slot,
        flags: 0,
        guest_phys_addr: base,
        memory_size: length,
        userspace_addr: region.as_ptr() as u64 + offset,
    };
    // SAFETY: the mapping covers this range, and the `Vm` keeps it until KVM's VM is gone.
    unsafe { vm.set_user_memory_region(part) }.map_err(|source| MemoryError::Register { base, source })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ram_beyond_three_gib_goes_on_above_four() {
        assert_eq!(ranges(1 << 30), [(0, 1 << 30)]);
        assert_eq!(ranges(5 << 30), [(0, 3 << 30), (4 << 30, 2 << 30)]);
        let memory = create((3 << 30) + LARGE_PAGE, (3 << 30) + LARGE_PAGE).unwrap();
        assert_eq!(top(&memory), (4 << 30) + LARGE_PAGE);
    }

    #[test]
    fn room_to_grow_lies_above_ram_in_whole_blocks() {
        assert_eq!(room(64 << 20, 64 << 20), None);
        assert_eq!(room(64 << 20, 66 << 20), Some((4 << 30, 128 << 20)));
        assert_eq!(room(5 << 30, 6 << 30), Some((6 << 30, 1 << 30)));
        let memory = create(RAM_MIN, RAM_MIN + LARGE_PAGE).unwrap();
        assert_eq!((ram_top(RAM_MIN), top(&memory)), (RAM_MIN, (4 << 30) + (128 << 20)));
        for max in [RAM_MIN - LARGE_PAGE, RAM_MIN + 4096, u64::MAX] {
            assert!(matches!(create(RAM_MIN, max), Err(MemoryError::Max { .. })));
        }
    }

    #[test]
    fn odd_or_tiny_ram_is_refused() {
        assert!(matches!(create(RAM_MIN - LARGE_PAGE, RAM_MIN), Err(MemoryError::Size { .. })));
        assert!(matches!(create(RAM_MIN + 4096, 1 << 30), Err(MemoryError::Size { .. })));
    }
}
