//! A view of a file for a request that needs an address. Nothing is read through it.

#![allow(unsafe_code)]

use std::ffi::c_void;
use std::fs::File;
use std::io;
use std::num::NonZeroUsize;
use std::ptr::NonNull;

use nix::sys::mman::{MapFlags, ProtFlags, mmap, mmap_anonymous, munmap};

/// Bytes of a large page of x86-64.
pub(crate) const LARGE_PAGE: u64 = 2 << 20;

/// `MADV_COLLAPSE` of linux/mman.h.
const MADV_COLLAPSE: libc::c_int = 25;

/// A view of the beginning of a file, at an address aligned for large pages of the address space.
#[derive(Debug)]
pub(crate) struct Mapping {
    /// Room for the view, and for its place to be chosen.
    room: NonNull<c_void>,
    room_bytes: usize,
    /// Offset of the view in its room.
    view: usize,
    view_bytes: usize,
}

impl Mapping {
    /// The first `bytes` of the file, whole large pages.
    pub(crate) fn of(file: &File, bytes: u64) -> io::Result<Mapping> {
        let size = |bytes: u64| usize::try_from(bytes).expect("usize has 64 bits");
        let (view_bytes, large) = (size(bytes), size(LARGE_PAGE));
        let room_bytes = view_bytes + large;
        let length = |bytes| NonZeroUsize::new(bytes).ok_or(io::ErrorKind::InvalidInput);
        let flags = MapFlags::MAP_PRIVATE | MapFlags::MAP_NORESERVE;
        // SAFETY: a new range of addresses, wherever the kernel likes.
        let room = unsafe { mmap_anonymous(None, length(room_bytes)?, ProtFlags::PROT_NONE, flags) }?;
        let view = room.addr().get().next_multiple_of(large) - room.addr().get();
        let mapping = Mapping { room, room_bytes, view, view_bytes };
        let at = mapping.address(0).addr();
        let flags = MapFlags::MAP_SHARED | MapFlags::MAP_FIXED;
        // SAFETY: the range lies in the room, owned by this mapping alone.
        unsafe { mmap(Some(at), length(view_bytes)?, ProtFlags::PROT_READ, flags, file, 0) }?;
        Ok(mapping)
    }

    /// Requests a large page at this offset of the file, inside the view.
    pub(crate) fn collapse(&self, at: u64) -> io::Result<()> {
        let at = usize::try_from(at).expect("usize has 64 bits");
        let large = usize::try_from(LARGE_PAGE).expect("usize has 64 bits");
        assert!(at.checked_add(large).is_some_and(|end| end <= self.view_bytes), "it is in the view");
        // SAFETY: the range is mapped, and the request does not change its content.
        let answer = unsafe { libc::madvise(self.address(at).as_ptr(), large, MADV_COLLAPSE) };
        if answer == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    }

    fn address(&self, at: usize) -> NonNull<c_void> {
        let address = self.room.as_ptr().wrapping_byte_add(self.view + at);
        NonNull::new(address).expect("the room is not at the end of all addresses")
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: no address in the room is in use any more.
        let _ = unsafe { munmap(self.room, self.room_bytes) };
    }
}
