//! Memory hotplug: a region of the guest's address space above RAM. A running guest gets the requested amount
//! of it through the memory device. This module never touches the memory's content.
//!
//! KVM gets the room in pieces, only as far as the guest may use it. Memory not yet offered does not exist
//! for the guest, nor for its devices.

use std::sync::Arc;

use kvm_ioctls::VmFd;
use nix::sys::eventfd::{EfdFlags, EventFd};
use vm_memory::{GuestAddress, GuestMemoryRegion as _, GuestRegionMmap};
use vmm_devices::virtio::GuestMemory;
use vmm_devices::virtio::mem::{BLOCK_BYTES, Mem, MemHandle};

use crate::memory;
use crate::register_pages;

/// First KVM memory slot for pieces, after all others.
const KVM_SLOT_FIRST: u32 = register_pages::KVM_SLOT + 1;

/// The VM's memory cannot be made this large or small.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs)]
pub enum ResizeError {
    #[error("{asked} bytes of memory: this VM may have {least} to {most}, in steps of {BLOCK_BYTES}")]
    Size { asked: u64, least: u64, most: u64 },
    #[error("cannot give memory to KVM")]
    Register(#[from] crate::MemoryError),
    #[error("cannot plug the memory device")]
    Plug(#[source] vmm_devices::virtio::mmio::TransportError),
    #[error("cannot make an event")]
    Event(#[source] nix::Error),
}

/// The region and the offered part of it.
#[derive(Debug)]
pub(crate) struct MemoryHotplug {
    boot_bytes: u64,
    max_bytes: u64,
    room: Option<Arc<GuestRegionMmap>>,
    /// Bytes from the base, and pieces, given to KVM.
    given: u64,
    pieces: u32,
    settled: Arc<EventFd>,
    handle: Option<MemHandle>,
}

impl MemoryHotplug {
    /// For a VM of `boot_bytes` with a maximum of `max_bytes`, growing into `room`.
    pub(crate) fn new(
        boot_bytes: u64,
        max_bytes: u64,
        room: Option<Arc<GuestRegionMmap>>,
    ) -> Result<MemoryHotplug, ResizeError> {
        let settled = EventFd::from_flags(EfdFlags::EFD_NONBLOCK | EfdFlags::EFD_CLOEXEC);
        let settled = Arc::new(settled.map_err(ResizeError::Event)?);
        Ok(MemoryHotplug { boot_bytes, max_bytes, room, given: 0, pieces: 0, settled, handle: None })
    }

    /// Memory at boot, in bytes.
    pub(crate) fn boot_bytes(&self) -> u64 {
        self.boot_bytes
    }

    /// Maximum memory of the VM, in bytes.
    pub(crate) fn max_bytes(&self) -> u64 {
        self.max_bytes
    }

    /// Bytes of the room that the guest may use, from its base on.
    pub(crate) fn given_bytes(&self) -> u64 {
        self.given
    }

    /// Offset of an address into the room; none outside of it.
    pub(crate) fn room_offset(&self, address: GuestAddress) -> Option<u64> {
        let room = self.room.as_ref()?;
        address.0.checked_sub(room.start_addr().0).filter(|offset| *offset < room.len())
    }

    /// Gives a restored VM as much of the room as the saved one had, and returns the device for it. The
    /// device's own state has the plugged part.
    pub(crate) fn restore(
        &mut self,
        vm: &VmFd,
        memory: &GuestMemory,
        given: u64,
    ) -> Result<Mem, ResizeError> {
        let (least, most) = (self.boot_bytes, self.max_bytes);
        let room = self.room.clone().filter(|room| given <= room.len() && given.is_multiple_of(BLOCK_BYTES));
        let room = room.ok_or(ResizeError::Size { asked: least.saturating_add(given), least, most })?;
        self.give(vm, given)?;
        let device = Mem::new(room, memory.clone(), self.settled.clone());
        self.handle = Some(device.handle());
        Ok(device)
    }

    /// Readable once the guest has completed the last offer.
    pub(crate) fn settled(&self) -> &EventFd {
        &self.settled
    }

    /// Offers `bytes` of memory in total. Returns a device to plug at the first offer above the size at boot.
    pub(crate) fn offer(
        &mut self,
        vm: &VmFd,
        memory: &GuestMemory,
        bytes: u64,
    ) -> Result<Option<Mem>, ResizeError> {
        let (least, most) = (self.boot_bytes, self.max_bytes);
        if !(least..=most).contains(&bytes) || !(bytes - least).is_multiple_of(BLOCK_BYTES) {
            return Err(ResizeError::Size { asked: bytes, least, most });
        }
        let requested = bytes - least;
        let room_bytes = self.room.as_ref().map_or(0, |room| room.len());
        let usable = requested.next_multiple_of(memory::block(self.boot_bytes)).min(room_bytes);
        self.give(vm, usable)?;
        let device = match (&self.handle, &self.room) {
            (None, Some(room)) if requested > 0 => {
                let device = Mem::new(room.clone(), memory.clone(), self.settled.clone());
                self.handle = Some(device.handle());
                Some(device)
            }
            _ => None,
        };
        // The result of the last offer is out of date.
        let _ = self.settled.read();
        match &self.handle {
            Some(handle) => handle.request(requested, usable),
            // Nothing was ever plugged, and nothing is requested.
            None => drop(self.settled.write(1)),
        }
        Ok(device)
    }

    /// Forgets a device that could not be plugged.
    pub(crate) fn withdraw(&mut self) {
        self.handle = None;
    }

    /// Gives KVM the room up to `usable`. KVM keeps everything given before, because the guest may still use
    /// it.
    fn give(&mut self, vm: &VmFd, usable: u64) -> Result<(), ResizeError> {
        let Some(room) = self.room.as_ref().filter(|_| usable > self.given) else { return Ok(()) };
        let (base, length) = (room.start_addr().0 + self.given, usable - self.given);
        memory::open_room(room, self.given, length)?;
        memory::register_part(vm, KVM_SLOT_FIRST + self.pieces, room, base, length)?;
        (self.given, self.pieces) = (usable, self.pieces + 1);
        Ok(())
    }
}
