//! Guest memory: anonymous memory, in large pages if the host has them, or a template's file, mapped by
//! `saved_memory.rs`. KVM gets RAM as one or two memory slots. The room for growth is address space only. It
//! cannot be read or written, and a host without overcommitment does not count it, until `memory_hotplug.rs`
//! opens parts of it. This module never touches the memory's content.

use std::ffi::c_void;
use std::ptr::NonNull;
use std::sync::Arc;

use kvm_bindings::kvm_userspace_memory_region;
use kvm_ioctls::VmFd;
use nix::sys::mman::{MmapAdvise, ProtFlags, madvise, mprotect};
use proto_vmm::MEMORY_BYTES_MAX;
use vm_memory::{GuestAddress, GuestMemory as _, GuestMemoryRegion, GuestRegionMmap, MmapRegion};
use vmm_devices::virtio::{GuestMemory, MemoryPartError};

use crate::layout::{LARGE_PAGE, MMIO_GAP, MMIO_GAP_END};

/// Least RAM of a guest, in bytes: a kernel of 16 MiB at 16 MiB.
pub const RAM_MIN: u64 = 32 << 20;

/// KVM memory slots used by RAM; pmem windows follow.
pub(crate) const KVM_SLOTS_RAM: u32 = 2;

/// Guest memory could not be made.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs)]
pub enum MemoryError {
    #[error("guest memory of {bytes} bytes: it must be a multiple of 2 MiB, and 32 MiB to 1 TiB")]
    Size { bytes: u64 },
    #[error("guest memory of at most {max} bytes, and {bytes} at boot: both must be multiples of 2 MiB")]
    Max { bytes: u64, max: u64 },
    #[error("cannot map guest memory")]
    Map(#[from] vm_memory::mmap::FromRangesError),
    #[error("cannot map the room for the VM's growth, or saved memory")]
    Room(#[from] vm_memory::mmap::MmapRegionError),
    #[error("cannot read the size of saved memory")]
    Saved(#[source] std::io::Error),
    #[error("saved memory of {has} bytes, and {bytes} are asked for")]
    SavedSize { has: u64, bytes: u64 },
    #[error("the saved memory is not sealed against changes")]
    Unsealed,
    #[error("cannot map anonymous memory over a hole in saved memory")]
    Hole(#[source] nix::Error),
    #[error(transparent)]
    Part(#[from] MemoryPartError),
    #[error("cannot have {bytes} bytes of memory more")]
    Open { bytes: u64, source: nix::Error },
    #[error("cannot give memory at {base:#x} to KVM")]
    Register { base: u64, source: kvm_ioctls::Error },
}

/// Makes zeroed RAM of `bytes`.
pub(crate) fn create(bytes: u64) -> Result<GuestMemory, MemoryError> {
    check_size(bytes)?;
    let map = |(base, length)| GuestRegionMmap::from_range(GuestAddress(base), size(length), None);
    let ram = ranges(bytes).into_iter().map(map).collect::<Result<Vec<_>, _>>()?;
    ram.iter().for_each(|region| prefer_large_pages(region, 0, region.len()));
    Ok(GuestMemory::new(ram)?)
}

pub(crate) fn check_size(bytes: u64) -> Result<(), MemoryError> {
    let possible = (RAM_MIN..=MEMORY_BYTES_MAX).contains(&bytes) && bytes.is_multiple_of(LARGE_PAGE);
    if possible { Ok(()) } else { Err(MemoryError::Size { bytes }) }
}

/// Returns the maximum memory of a VM with `bytes` at boot, if the caller asks for `asked` and the processor
/// cannot reach `limit`. Half of the processor's range is kept for images: otherwise a host with few
/// addresses beyond its own memory could start no VM. Memory at boot is not cut.
pub(crate) fn most(bytes: u64, asked: u64, limit: u64) -> Result<u64, MemoryError> {
    if asked < bytes || !asked.is_multiple_of(LARGE_PAGE) {
        return Err(MemoryError::Max { bytes, max: asked });
    }
    Ok(asked.min(MEMORY_BYTES_MAX).min(limit / 2).max(bytes))
}

/// Makes the room for RAM of `bytes` to grow in, up to `max` in total. None of it is accessible yet.
pub(crate) fn make_room(bytes: u64, max: u64) -> Result<Option<Arc<GuestRegionMmap>>, MemoryError> {
    let Some((base, length)) = room(bytes, max) else { return Ok(None) };
    let flags = libc::MAP_ANONYMOUS | libc::MAP_PRIVATE | libc::MAP_NORESERVE;
    let mapping = MmapRegion::build(None, size(length), libc::PROT_NONE, flags)?;
    let region = GuestRegionMmap::new(mapping, GuestAddress(base)).expect("it ends below 2 TiB");
    prefer_large_pages(&region, 0, length);
    Ok(Some(Arc::new(region)))
}

/// Turns a part of the room into memory.
pub(crate) fn open_room(room: &GuestRegionMmap, offset: u64, length: u64) -> Result<(), MemoryError> {
    let start = address_of(room, offset, length);
    // SAFETY: the range lies in the room's own mapping, and everything possible with it before stays
    // possible.
    unsafe { mprotect(start, size(length), ProtFlags::PROT_READ | ProtFlags::PROT_WRITE) }
        .map_err(|source| MemoryError::Open { bytes: length, source })
}

/// Returns the address in this process of a part of a region. The whole part must lie in the region's
/// mapping.
pub(crate) fn address_of(region: &GuestRegionMmap, offset: u64, length: u64) -> NonNull<c_void> {
    let inside = offset.checked_add(length).is_some_and(|end| end <= region.len());
    assert!(inside, "the part lies in the region");
    NonNull::new(region.as_ptr().wrapping_add(size(offset)).cast::<c_void>()).expect("it is mapped")
}

pub(crate) fn size(bytes: u64) -> usize {
    usize::try_from(bytes).expect("usize has 64 bits")
}

/// Returns the bytes of a memory block in Linux: 2 GiB with 64 GiB of memory or more
/// (`probe_memory_block_size`, arch/x86/mm/init_64.c).
pub(crate) fn block(ram_bytes: u64) -> u64 {
    if ram_bytes < 64 << 30 { 128 << 20 } else { 2 << 30 }
}

/// Returns (guest base, length) of the region for RAM of `bytes` to grow in, up to `max` in total. It lies
/// above RAM and has whole blocks, because the guest can use no others.
pub(crate) fn room(bytes: u64, max: u64) -> Option<(u64, u64)> {
    let length = max.saturating_sub(bytes).next_multiple_of(block(bytes));
    (length > 0).then(|| (ram_top(bytes).max(MMIO_GAP_END).next_multiple_of(2 << 30), length))
}

/// Asks for 2 MiB pages in a part of a region. A guest's boot touches thousands of small ones, and each is an
/// exit and a fault. A host without large pages (`transparent_hugepage=never`) continues with small ones.
pub(crate) fn prefer_large_pages(region: &GuestRegionMmap, offset: u64, length: u64) {
    let start = address_of(region, offset, length);
    // SAFETY: the range lies in the region's own mapping; the advice changes no content.
    let _ = unsafe { madvise(start, size(length), MmapAdvise::MADV_HUGEPAGE) };
}

/// (guest base, length) of RAM's parts, below and above the MMIO gap.
pub(crate) fn ranges(bytes: u64) -> Vec<(u64, u64)> {
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

/// Returns the first address above all memory, including the growth from `bytes` to `max`.
pub(crate) fn top(bytes: u64, max: u64) -> u64 {
    room(bytes, max).map_or(ram_top(bytes), |(base, length)| base + length)
}

/// Gives RAM to KVM.
pub(crate) fn register(vm: &VmFd, memory: &GuestMemory) -> Result<(), MemoryError> {
    for (slot, region) in (0..KVM_SLOTS_RAM).zip(memory.writable().iter()) {
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
        let memory = create((3 << 30) + LARGE_PAGE).unwrap();
        assert_eq!(memory.writable().last_addr().0 + 1, (4 << 30) + LARGE_PAGE);
    }

    #[test]
    fn room_to_grow_lies_above_ram_in_whole_blocks() {
        assert_eq!(room(64 << 20, 64 << 20), None);
        assert_eq!(room(64 << 20, 66 << 20), Some((4 << 30, 128 << 20)));
        assert_eq!(room(5 << 30, 6 << 30), Some((6 << 30, 1 << 30)));
        assert_eq!(ram_top(RAM_MIN), RAM_MIN);
        assert_eq!(top(RAM_MIN, RAM_MIN + LARGE_PAGE), (4 << 30) + (128 << 20));
        assert!(make_room(RAM_MIN, RAM_MIN).unwrap().is_none());
    }

    #[test]
    fn a_vm_is_built_for_what_can_be_and_not_for_what_is_asked() {
        let tib = 1 << 40;
        assert_eq!(most(RAM_MIN, 4 << 30, 1 << 46).unwrap(), 4 << 30);
        assert_eq!(most(RAM_MIN, 3 * tib, 1 << 46).unwrap(), MEMORY_BYTES_MAX, "a host of 3 TiB");
        assert_eq!(most(RAM_MIN, tib, tib).unwrap(), tib / 2, "a processor of 40 bits");
        assert_eq!(most(3 << 38, tib, tib).unwrap(), 3 << 38, "what is there at boot is there");
        for asked in [RAM_MIN - LARGE_PAGE, RAM_MIN + 4096, u64::MAX] {
            assert!(matches!(most(RAM_MIN, asked, 1 << 46), Err(MemoryError::Max { .. })));
        }
    }

    /// Returns true if this process may read and write at the offset into the room. A host without
    /// overcommitment counts such memory.
    fn is_open(room: &GuestRegionMmap, offset: u64) -> bool {
        let address = room.as_ptr() as u64 + offset;
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
        let access = maps.lines().find_map(|line| {
            let (range, rest) = line.split_once(' ')?;
            let (start, end) = range.split_once('-')?;
            let number = |text| u64::from_str_radix(text, 16).unwrap();
            (number(start)..number(end)).contains(&address).then(|| rest[..3].to_owned())
        });
        match access.unwrap().as_str() {
            "rw-" => true,
            "---" => false,
            other => panic!("{other}"),
        }
    }

    #[test]
    fn room_is_nobodys_until_it_is_opened() {
        let room = make_room(RAM_MIN, MEMORY_BYTES_MAX).unwrap().unwrap();
        let block = 128 << 20;
        assert!(!is_open(&room, 0) && !is_open(&room, room.len() - 1));
        open_room(&room, 0, block).unwrap();
        open_room(&room, block, block).unwrap();
        assert!(is_open(&room, 0) && is_open(&room, 2 * block - 1) && !is_open(&room, 2 * block));
    }

    #[test]
    fn odd_or_tiny_or_huge_ram_is_refused() {
        for bytes in [RAM_MIN - LARGE_PAGE, RAM_MIN + 4096, MEMORY_BYTES_MAX + LARGE_PAGE] {
            assert!(matches!(create(bytes), Err(MemoryError::Size { .. })));
        }
    }
}
