//! System calls straight into and out of guest memory, so that no data is copied on the way.
//!
//! The one place in the crate where addresses of guest memory are handed to the kernel. Every address is
//! checked against the memory map of its run, and the run is borrowed, and with it the map and its mappings, for as
//! long as the addresses are used. A run of what a device only reads may lie in an image, which is mapped read-only: the
//! kernel refuses to write there.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

use vm_memory::{GuestMemory as _, VolatileSlice};

use super::chain::Segments;

/// Entries that the kernel takes at once (UIO_MAXIOV).
const IOV_MAX: usize = 1024;

/// Room for addresses of buffers. Kept and filled again.
#[derive(Debug, Default)]
pub struct Iovecs(Vec<libc::iovec>);

// SAFETY: addresses are used through a `Transfer` only, which fills the list anew from mappings that it keeps, and
// those may be used from any thread.
unsafe impl Send for Iovecs {}

/// Buffers of a driver, as addresses in this process.
#[derive(Debug)]
pub struct Transfer<'a> {
    list: &'a mut Vec<libc::iovec>,
}

/// A buffer lies outside guest memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a buffer lies outside guest memory")]
pub struct Outside;

impl Iovecs {
    /// The buffers of `runs`, one run after the other.
    pub fn over<'a>(
        &'a mut self,
        runs: impl IntoIterator<Item = &'a Segments>,
    ) -> Result<Transfer<'a>, Outside> {
        let list = &mut self.0;
        list.clear();
        for run in runs {
            for segment in run.iter() {
                let map = run.map().ok_or(Outside)?;
                for slice in map.get_slices(segment.address, segment.length as usize) {
                    let slice: VolatileSlice<'_, _> = slice.map_err(|_| Outside)?;
                    let pointer = slice.ptr_guard_mut().as_ptr();
                    list.push(libc::iovec { iov_base: pointer.cast(), iov_len: slice.len() });
                }
            }
        }
        Ok(Transfer { list })
    }
}

impl Transfer<'_> {
    /// Fills all buffers from `file` at `offset`. Short files are an error.
    pub fn read_at(self, file: BorrowedFd<'_>, offset: u64) -> io::Result<()> {
        self.whole(offset, |list, offset| {
            // SAFETY: the list was made by `over` from checked guest memory that the borrowed runs keep mapped.
            unsafe { libc::preadv(file.as_raw_fd(), list.as_ptr(), list.len() as i32, offset) }
        })
    }

    /// Writes all buffers to `file` at `offset`.
    pub fn write_at(self, file: BorrowedFd<'_>, offset: u64) -> io::Result<()> {
        self.whole(offset, |list, offset| {
            // SAFETY: as in `read_at`; the kernel only reads the buffers.
            unsafe { libc::pwritev(file.as_raw_fd(), list.as_ptr(), list.len() as i32, offset) }
        })
    }

    /// One packet from `link` into the buffers, or an error if the packet is longer than they are.
    pub fn read_packet(self, link: BorrowedFd<'_>) -> io::Result<Packet> {
        // One byte more than the guest gave, to see that a packet was cut off.
        let mut surplus = 0u8;
        let here = libc::iovec { iov_base: (&raw mut surplus).cast(), iov_len: 1 };
        let room = self.list.len().min(IOV_MAX - 1);
        let taken: u64 = self.list[..room].iter().map(|entry| entry.iov_len as u64).sum();
        self.list.truncate(room);
        self.list.push(here);
        let result = retry(|| {
            // SAFETY: as in `read_at`; the last entry is a byte on this stack, which outlives the call.
            unsafe { libc::readv(link.as_raw_fd(), self.list.as_ptr(), self.list.len() as i32) }
        });
        self.list.pop();
        let length = result? as u64;
        Ok(if length > taken { Packet::TooLong } else { Packet::Whole { length } })
    }

    /// All buffers as one packet to `link`.
    pub fn write_packet(&self, link: BorrowedFd<'_>) -> io::Result<usize> {
        if self.list.len() > IOV_MAX {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        retry(|| {
            // SAFETY: as in `read_at`; the kernel only reads the buffers.
            unsafe { libc::writev(link.as_raw_fd(), self.list.as_ptr(), self.list.len() as i32) }
        })
    }

    /// Fills the buffers with random bytes, as far as the kernel gives them. Returns how many.
    pub fn fill_random(&self) -> io::Result<u64> {
        let mut done = 0;
        for entry in &*self.list {
            let got = retry(|| {
                // SAFETY: the entry was made by `over` from checked guest memory that stays mapped.
                unsafe { libc::getrandom(entry.iov_base, entry.iov_len, 0) }
            })?;
            done += got as u64;
            if got < entry.iov_len {
                break;
            }
        }
        Ok(done)
    }

    /// Calls `transfer` until all buffers are done. Buffers that are done are taken off the list.
    fn whole(self, mut offset: u64, transfer: impl Fn(&[libc::iovec], i64) -> isize) -> io::Result<()> {
        let mut list = &mut self.list[..];
        while !list.is_empty() {
            let at = i64::try_from(offset).map_err(|_| io::ErrorKind::InvalidInput)?;
            let mut count = retry(|| transfer(&list[..list.len().min(IOV_MAX)], at))?;
            if count == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            offset += count as u64;
            while let Some(entry) = list.first_mut() {
                if count < entry.iov_len {
                    // The pointer stays within the buffer: `count` is less than its length.
                    entry.iov_base = entry.iov_base.cast::<u8>().wrapping_add(count).cast();
                    entry.iov_len -= count;
                    break;
                }
                count -= entry.iov_len;
                list = &mut list[1..];
            }
        }
        Ok(())
    }
}

/// The outcome of reading a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Packet {
    /// All of it is in the buffers.
    Whole {
        /// Bytes.
        length: u64,
    },
    /// The packet did not fit and is lost.
    TooLong,
}

/// A system call that is repeated while signals interrupt it.
fn retry(mut call: impl FnMut() -> isize) -> io::Result<usize> {
    loop {
        match usize::try_from(call()) {
            Ok(count) => return Ok(count),
            Err(_) => {
                let error = io::Error::last_os_error();
                if error.kind() != io::ErrorKind::Interrupted {
                    return Err(error);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Seek as _, Write as _};
    use std::os::fd::AsFd as _;
    use std::sync::Arc;

    use vm_memory::{Bytes as _, GuestAddress, GuestRegionMmap};

    use super::*;
    use crate::virtio::chain::{Chain, Segment};
    use crate::virtio::{GuestMemory, MemoryMap};

    fn map() -> Arc<MemoryMap> {
        let region = |base| GuestRegionMmap::from_range(GuestAddress(base), 0x2000, None).unwrap();
        GuestMemory::new(vec![region(0), region(0x2000)]).unwrap().writable()
    }

    fn run(map: &Arc<MemoryMap>, segments: &[(u64, u32)]) -> Segments {
        let mut run = Chain::default().writable;
        for (address, length) in segments {
            run.push(Segment { address: GuestAddress(*address), length: *length }, map);
        }
        run
    }

    #[test]
    fn a_buffer_over_two_regions_is_filled_whole() {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(&[7; 0x1000]).unwrap();
        let (map, mut iovecs) = (map(), Iovecs::default());
        let run = run(&map, &[(0x1800, 0xff0), (0x100, 0x10)]);
        iovecs.over([&run]).unwrap().read_at(file.as_fd(), 0).unwrap();
        assert_eq!(map.read_obj::<[u8; 2]>(GuestAddress(0x1fff)).unwrap(), [7, 7]);
    }

    #[test]
    fn a_short_file_is_an_error() {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(&[7; 100]).unwrap();
        file.rewind().unwrap();
        let (run, mut iovecs) = (run(&map(), &[(0, 200)]), Iovecs::default());
        let error = iovecs.over([&run]).unwrap().read_at(file.as_fd(), 0).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof);
    }

    #[test]
    fn a_buffer_outside_memory_is_refused() {
        let map = map();
        for outside in [(0x3fff, 2), (0x4000, 1), (u64::MAX, 1), (0, u32::MAX)] {
            assert_eq!(Iovecs::default().over([&run(&map, &[outside])]).err(), Some(Outside), "{outside:?}");
        }
    }

    #[test]
    fn random_bytes_fill_every_buffer() {
        let (map, mut iovecs) = (map(), Iovecs::default());
        let run = run(&map, &[(0, 64), (0x1ff0, 64)]);
        assert_eq!(iovecs.over([&run]).unwrap().fill_random().unwrap(), 128);
        assert_ne!(map.read_obj::<[u8; 32]>(GuestAddress(0x1ff0)).unwrap(), [0; 32]);
    }
}
