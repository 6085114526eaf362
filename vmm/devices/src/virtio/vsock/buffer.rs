//! One direction of a descriptor chain, as a run of bytes in guest memory.
//!
//! It borrows a chain checked by the ring. It copies bytes in and out, or returns slices for system calls.
//! The guest may change the bytes at any time, so important ones are read once.

use vm_memory::{GuestAddress, GuestMemory as _, VolatileSlice};

use crate::virtio::chain::Segments;

/// See the module.
#[derive(Clone, Copy, Debug)]
pub(super) struct Buffer<'a> {
    segments: &'a Segments,
}

impl<'a> Buffer<'a> {
    /// `segments` must come from a chain without fault.
    pub(super) fn new(segments: &'a Segments) -> Buffer<'a> {
        Buffer { segments }
    }

    /// Returns the number of all bytes.
    pub(super) fn bytes(&self) -> usize {
        usize::try_from(self.segments.bytes()).unwrap_or(usize::MAX)
    }

    /// Returns the pieces of `offset..offset + length`, in order. A part beyond the end is left out.
    pub(super) fn slices(&self, offset: usize, length: usize) -> impl Iterator<Item = VolatileSlice<'a>> {
        let map = self.segments.map();
        let (mut skip, mut left) = (offset, length);
        let cut = self.segments.iter().filter_map(move |segment| {
            let size = segment.length as usize;
            let start = skip.min(size);
            skip -= start;
            let taken = left.min(size - start);
            left -= taken;
            (taken > 0).then(|| (GuestAddress(segment.address.0 + start as u64), taken))
        });
        // The ring has checked the ranges against this map, and the map never changes.
        cut.flat_map(move |(address, size)| {
            map.into_iter().flat_map(move |map| map.get_slices(address, size).flatten())
        })
    }

    /// Copies from `offset` into `bytes`. Returns the number of bytes copied.
    pub(super) fn read(&self, offset: usize, bytes: &mut [u8]) -> usize {
        let mut done = 0;
        for slice in self.slices(offset, bytes.len()) {
            done += slice.copy_to(&mut bytes[done..]);
        }
        done
    }

    /// Copies `bytes` to the start, as far as there is room.
    pub(super) fn write(&self, bytes: &[u8]) {
        let mut done = 0;
        for slice in self.slices(0, bytes.len()) {
            slice.copy_from(&bytes[done..done + slice.len()]);
            done += slice.len();
        }
    }
}
