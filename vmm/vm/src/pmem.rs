//! Windows in guest-physical memory for the guest to read image files: a read-only mapping of the files in
//! this process (`image_map.rs`), a read-only memory slot in KVM, and a part of the memory readable by
//! devices. This module never reads the files itself.

use std::collections::BTreeMap;
use std::fs::File;
use std::sync::Arc;

use kvm_bindings::{KVM_MEM_READONLY, kvm_userspace_memory_region};
use kvm_ioctls::VmFd;
use proto_vmm::{ImagePart, Slot};
use vm_memory::{GuestAddress, GuestRegionMmap};
use vmm_devices::virtio::{GuestMemory, MemoryPartError};

use crate::image_map::{self, ImageMapError};
use crate::memory::KVM_SLOTS_RAM;

/// A window could not be opened.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs)]
pub enum PmemError {
    #[error(transparent)]
    Files(#[from] ImageMapError),
    #[error(
        "no room for an image of {bytes} bytes beside the others, between {base:#x} and the processor's limit {limit:#x}"
    )]
    NoRoom { bytes: u64, base: u64, limit: u64 },
    #[error(transparent)]
    Part(#[from] MemoryPartError),
    #[error("cannot give an image's window at {base:#x} to KVM")]
    Register { base: u64, source: kvm_ioctls::Error },
}

/// All windows of a VM.
#[derive(Debug)]
pub(crate) struct PmemWindows {
    base: u64,
    /// First address beyond the guest processor's reach.
    limit: u64,
    /// The devices' memory. They read the windows through it.
    memory: GuestMemory,
    open: BTreeMap<Slot, Window>,
    /// Places of windows of a saved VM that are not open yet.
    saved: BTreeMap<Slot, u64>,
}

#[derive(Debug)]
struct Window {
    base: u64,
    length: u64,
    /// Kept for KVM, because KVM reads through it.
    _mapping: Arc<GuestRegionMmap>,
}

impl PmemWindows {
    /// No windows yet. All will lie in `base..limit`, where `memory` has nothing.
    pub(crate) fn new(base: u64, limit: u64, memory: GuestMemory) -> PmemWindows {
        PmemWindows { base, limit, memory, open: BTreeMap::new(), saved: BTreeMap::new() }
    }

    /// Lets the next window of `slot` begin at `base`: the guest of a saved VM knows it there.
    pub(crate) fn expect(&mut self, slot: Slot, base: u64) {
        self.saved.insert(slot, base);
    }

    /// Opens one window for all files of an image in `slot`. The slot must have none yet. Returns the
    /// window's guest base and its length in bytes.
    pub(crate) fn open(
        &mut self,
        vm: &VmFd,
        slot: Slot,
        parts: &[ImagePart<File>],
    ) -> Result<(u64, u64), PmemError> {
        let length = image_map::check(parts)?;
        let base = match self.saved.remove(&slot) {
            Some(base) => self.check_place(base, length)?,
            None => self.place(length)?,
        };
        let mapping = image_map::map(parts, length)?;
        let end = PmemError::NoRoom { bytes: length, base, limit: self.limit };
        let mapping = Arc::new(GuestRegionMmap::new(mapping, GuestAddress(base)).ok_or(end)?);
        register(vm, slot, base, length, mapping.as_ptr() as u64)?;
        self.open.insert(slot, Window { base, length, _mapping: mapping.clone() });
        if let Err(error) = self.memory.add_image(mapping) {
            // The guest's window must not stay longer than the devices'.
            self.close(vm, slot)?;
            return Err(error.into());
        }
        Ok((base, length))
    }

    /// Returns the bytes of the window of `slot`, or 0 without a window.
    pub(crate) fn length(&self, slot: Slot) -> u64 {
        self.open.get(&slot).map_or(0, |window| window.length)
    }

    /// Closes the window of `slot`, if it has one.
    pub(crate) fn close(&mut self, vm: &VmFd, slot: Slot) -> Result<(), PmemError> {
        if let Some(window) = self.open.get(&slot) {
            register(vm, slot, window.base, 0, 0)?;
            self.memory.remove_image(window.base);
            self.open.remove(&slot);
        }
        Ok(())
    }

    /// Returns the place of a saved VM's window, if it is free.
    fn check_place(&self, base: u64, length: u64) -> Result<u64, PmemError> {
        let no_room = || PmemError::NoRoom { bytes: length, base, limit: self.limit };
        let end = base.checked_add(length).filter(|end| base >= self.base && *end <= self.limit);
        let end = end.ok_or_else(no_room)?;
        let is_free = |window: &Window| end <= window.base || window.base + window.length <= base;
        if self.open.values().all(is_free) { Ok(base) } else { Err(no_room()) }
    }

    /// Returns the lowest free place of `length` bytes.
    fn place(&self, length: u64) -> Result<u64, PmemError> {
        let mut taken: Vec<(u64, u64)> = self.open.values().map(|w| (w.base, w.length)).collect();
        taken.sort_unstable();
        let mut base = self.base;
        for (start, size) in taken {
            if start - base >= length {
                break;
            }
            base = start + size;
        }
        match base.checked_add(length) {
            Some(end) if end <= self.limit => Ok(base),
            _ => Err(PmemError::NoRoom { bytes: length, base: self.base, limit: self.limit }),
        }
    }
}

/// Makes, or with length 0 removes, the KVM memory slot.
fn register(vm: &VmFd, slot: Slot, base: u64, length: u64, address: u64) -> Result<(), PmemError> {
    let region = kvm_userspace_memory_region {
        slot: KVM_SLOTS_RAM + u32::from(slot.number()),
        flags: if length == 0 { 0 } else { KVM_MEM_READONLY },
        guest_phys_addr: base,
        memory_size: length,
        userspace_addr: address,
    };
    // SAFETY: the mapping covers exactly this range, and its window keeps it until KVM has let it go.
    unsafe { vm.set_user_memory_region(region) }.map_err(|source| PmemError::Register { base, source })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layout::LARGE_PAGE;

    fn windows(taken: &[(u8, u64, u64)]) -> PmemWindows {
        let region = |base| GuestRegionMmap::from_range(GuestAddress(base), 4096, None).unwrap();
        let memory = GuestMemory::new(vec![region(0)]).unwrap();
        let mut windows = PmemWindows::new(4 << 30, 8 << 30, memory);
        for &(slot, base, length) in taken {
            let mapping = Arc::new(region(base));
            windows.open.insert(Slot::new(slot).unwrap(), Window { base, length, _mapping: mapping });
        }
        windows
    }

    #[test]
    fn a_gap_that_fits_is_used_again() {
        let windows = windows(&[(17, 4 << 30, 2 << 20), (18, (4 << 30) + (6 << 20), 2 << 20)]);
        assert_eq!(windows.place(4 << 20).unwrap(), (4 << 30) + (2 << 20));
        assert_eq!(windows.place(6 << 20).unwrap(), (4 << 30) + (8 << 20));
    }

    #[test]
    fn a_saved_window_has_its_place_again_or_none() {
        let windows = windows(&[(17, 5 << 30, 2 << 20)]);
        let fits = |base: u64| windows.check_place(base, 4 << 20).is_ok();
        assert!(fits(4 << 30) && fits((5 << 30) - (4 << 20)) && fits((5 << 30) + (2 << 20)));
        for base in [(4 << 30) - (2 << 20), (5 << 30) - (2 << 20), 5 << 30, 8 << 30, u64::MAX - 1] {
            assert!(!fits(base), "{base:#x}");
        }
    }

    #[test]
    fn a_window_beyond_the_processors_limit_is_refused() {
        assert!(windows(&[]).place(4 << 30).is_ok());
        assert!(matches!(windows(&[]).place((4 << 30) + LARGE_PAGE), Err(PmemError::NoRoom { .. })));
        assert!(matches!(windows(&[]).place(u64::MAX - 1), Err(PmemError::NoRoom { .. })));
    }
}
