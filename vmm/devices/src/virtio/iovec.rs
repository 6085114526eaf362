//! System calls directly into and out of guest memory, without copying data on the way.
//!
//! Besides the packet receive window, this is the only place in the crate that passes addresses of guest
//! memory to the kernel. Every address is checked against its run's memory map. The run is borrowed as long
//! as the addresses are used, and with it the map and its mappings. A run for device reads may lie in an
//! image. Images are mapped read-only, so the kernel refuses to write there.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

use vm_memory::{Address as _, GuestMemory as _, GuestMemoryRegion as _, VolatileSlice};

use super::MemoryMap;
use super::chain::{Segment, Segments};

/// Most entries in one system call (UIO_MAXIOV).
pub(super) const IOV_MAX: usize = 1024;

/// Storage for addresses of buffers. It is kept and filled again.
#[derive(Debug, Default)]
pub struct Iovecs(Vec<libc::iovec>);

// SAFETY: addresses are used only through a `Transfer`. It refills the list from mappings that it keeps, and
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
    /// Returns the buffers of `runs`, one run after the other.
    pub fn over<'a>(
        &'a mut self,
        runs: impl IntoIterator<Item = &'a Segments>,
    ) -> Result<Transfer<'a>, Outside> {
        let list = &mut self.0;
        list.clear();
        for run in runs {
            for segment in run.iter() {
                let map = run.map().ok_or(Outside)?;
                entries(map, segment, |entry| list.push(entry))?;
            }
        }
        Ok(Transfer { list })
    }

    /// So many bytes of `run`, or as many as there are, from `skip` bytes on.
    pub fn over_part<'a>(
        &'a mut self,
        run: &'a Segments,
        mut skip: u64,
        bytes: u32,
    ) -> Result<Transfer<'a>, Outside> {
        let (list, mut bytes) = (&mut self.0, bytes);
        list.clear();
        for Segment { address, length } in run.iter() {
            let before = skip.min(length.into()) as u32;
            let here = (length - before).min(bytes);
            (skip, bytes) = (skip - u64::from(before), bytes - here);
            if here > 0 {
                let map = run.map().ok_or(Outside)?;
                let address = address.checked_add(before.into()).ok_or(Outside)?;
                entries(map, Segment { address, length: here }, |entry| list.push(entry))?;
            }
        }
        Ok(Transfer { list })
    }
}

/// Calls `each` with the addresses of a buffer, in one piece except where parts of memory meet. They are
/// valid while `map` is kept.
pub(super) fn entries(
    map: &MemoryMap,
    segment: Segment,
    mut each: impl FnMut(libc::iovec),
) -> Result<(), Outside> {
    let entry = |slice: VolatileSlice<'_>| libc::iovec {
        iov_base: slice.ptr_guard_mut().as_ptr().cast(),
        iov_len: slice.len(),
    };
    let length = segment.length as usize;
    if let Some((part, offset)) = map.part(segment.address, length) {
        each(entry(part.get_slice(offset, length).map_err(|_| Outside)?));
        return Ok(());
    }
    for slice in map.get_slices(segment.address, length) {
        each(entry(slice.map_err(|_| Outside)?));
    }
    Ok(())
}

impl Transfer<'_> {
    /// Fills all buffers from `file` at `offset`. Short files are an error.
    pub fn read_at(self, file: BorrowedFd<'_>, offset: u64) -> io::Result<()> {
        self.whole(offset, |list, offset| {
            // SAFETY: the list was made by `over` from checked guest memory that the borrowed runs keep
            // mapped.
            unsafe { libc::preadv(file.as_raw_fd(), list.as_ptr(), list.len() as i32, offset) }
        })
    }

    /// Fills the buffers from `file` at `offset`, up to its end, by one system call. Returns the bytes.
    pub fn read_some_at(self, file: BorrowedFd<'_>, offset: u64) -> io::Result<usize> {
        self.once(offset, |list, offset| {
            // SAFETY: as in `read_at`.
            unsafe { libc::preadv(file.as_raw_fd(), list.as_ptr(), list.len() as i32, offset) }
        })
    }

    /// Writes the buffers to `file` at `offset`, as far as it takes them, by one system call with these
    /// flags of pwritev2(2). Returns the bytes.
    pub fn write_some_at(self, file: BorrowedFd<'_>, offset: u64, flags: i32) -> io::Result<usize> {
        self.once(offset, |list, offset| {
            // SAFETY: as in `read_at`; the kernel only reads the buffers.
            unsafe { libc::pwritev2(file.as_raw_fd(), list.as_ptr(), list.len() as i32, offset, flags) }
        })
    }

    /// Fills all buffers from the content of `file` cached in memory at `offset`. Returns true if this was
    /// all of it. If not, the buffers' content is invalid, and the kernel has begun to read the rest. The
    /// error is EOPNOTSUPP if the file system does not support this.
    pub fn read_cached_at(&self, file: BorrowedFd<'_>, offset: u64) -> io::Result<bool> {
        let at = i64::try_from(offset).map_err(|_| io::ErrorKind::InvalidInput)?;
        let list = &self.list[..self.list.len().min(IOV_MAX)];
        let read = retry(|| {
            // SAFETY: as in `read_at`.
            unsafe { libc::preadv2(file.as_raw_fd(), list.as_ptr(), list.len() as i32, at, libc::RWF_NOWAIT) }
        });
        match read {
            Ok(count) => Ok(count == self.bytes()),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Writes all buffers to `file` at `offset`.
    pub fn write_at(self, file: BorrowedFd<'_>, offset: u64) -> io::Result<()> {
        self.whole(offset, |list, offset| {
            // SAFETY: as in `read_at`; the kernel only reads the buffers.
            unsafe { libc::pwritev(file.as_raw_fd(), list.as_ptr(), list.len() as i32, offset) }
        })
    }

    /// Writes all buffers as one packet to `link`.
    pub fn write_packet(&self, link: BorrowedFd<'_>) -> io::Result<usize> {
        if self.list.len() > IOV_MAX {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        retry(|| {
            // SAFETY: as in `read_at`; the kernel only reads the buffers.
            unsafe { libc::writev(link.as_raw_fd(), self.list.as_ptr(), self.list.len() as i32) }
        })
    }

    /// Fills the buffers with random bytes, as far as the kernel gives them. Returns the number of bytes.
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

    /// Calls `transfer` once, for all buffers.
    fn once(self, offset: u64, transfer: impl Fn(&[libc::iovec], i64) -> isize) -> io::Result<usize> {
        let at = i64::try_from(offset).map_err(|_| io::Error::from_raw_os_error(libc::EINVAL))?;
        if self.list.len() > IOV_MAX {
            return Err(io::Error::from_raw_os_error(libc::EINVAL));
        }
        retry(|| transfer(self.list, at))
    }

    fn bytes(&self) -> usize {
        self.list.iter().map(|entry| entry.iov_len).sum()
    }

    /// Calls `transfer` until all buffers are done. Finished buffers are removed from the list.
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

/// Repeats a system call while signals interrupt it.
pub(super) fn retry(mut call: impl FnMut() -> isize) -> io::Result<usize> {
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

    use vm_memory::{Bytes as _, GuestAddress};

    use super::*;
    use crate::virtio::testing::{run, two_parts};

    #[test]
    fn a_buffer_over_two_regions_is_filled_whole() {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(&[7; 0x1000]).unwrap();
        let (map, mut iovecs) = (two_parts(), Iovecs::default());
        let run = run(&map, &[(0x1800, 0xff0), (0x100, 0x10)]);
        iovecs.over([&run]).unwrap().read_at(file.as_fd(), 0).unwrap();
        assert_eq!(map.read_obj::<[u8; 2]>(GuestAddress(0x1fff)).unwrap(), [7, 7]);
    }

    #[test]
    fn a_short_file_is_an_error() {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(&[7; 100]).unwrap();
        file.rewind().unwrap();
        let (run, mut iovecs) = (run(&two_parts(), &[(0, 200)]), Iovecs::default());
        let error = iovecs.over([&run]).unwrap().read_at(file.as_fd(), 0).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof);
    }

    #[test]
    fn a_buffer_outside_memory_is_refused() {
        let map = two_parts();
        for outside in [(0x3fff, 2), (0x4000, 1), (u64::MAX, 1), (0, u32::MAX)] {
            assert_eq!(Iovecs::default().over([&run(&map, &[outside])]).err(), Some(Outside), "{outside:?}");
        }
    }

    #[test]
    fn random_bytes_fill_every_buffer() {
        let (map, mut iovecs) = (two_parts(), Iovecs::default());
        let run = run(&map, &[(0, 64), (0x1ff0, 64)]);
        assert_eq!(iovecs.over([&run]).unwrap().fill_random().unwrap(), 128);
        assert_ne!(map.read_obj::<[u8; 32]>(GuestAddress(0x1ff0)).unwrap(), [0; 32]);
    }
}
