//! System calls straight into and out of guest memory, so that no data is copied on the way.
//!
//! The one place in the crate where addresses of guest memory are handed to the kernel. Every address is
//! checked against the memory map of its run, and the run is borrowed, and with it the map and its mappings, for as
//! long as the addresses are used. A run of what a device only reads may lie in an image, which is mapped read-only: the
//! kernel refuses to write there.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::sync::Arc;

use vm_memory::{GuestMemory as _, GuestMemoryRegion as _, VolatileSlice};

use super::MemoryMap;
use super::chain::{Segment, Segments};

/// Entries that the kernel takes at once (UIO_MAXIOV).
const IOV_MAX: usize = 1024;

/// Entries of a window that may be filled before the others move up.
const FILLED_MAX: usize = 64;

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
                entries(map, segment, |entry| list.push(entry))?;
            }
        }
        Ok(Transfer { list })
    }
}

/// The addresses of a buffer, which hold while `map` is kept: in one piece but where parts of memory meet.
fn entries(map: &MemoryMap, segment: Segment, mut each: impl FnMut(libc::iovec)) -> Result<(), Outside> {
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

/// Buffers that packets will be received into. The window keeps addresses from one packet to the next, and buffers that adjoin are one
/// entry: drivers cut them off one piece of memory.
#[derive(Debug, Default)]
pub struct ReceiveWindow {
    /// The map that all buffers were checked against; `None` if there is no buffer.
    map: Option<Arc<MemoryMap>>,
    list: Vec<libc::iovec>,
    /// Entries before this one are filled.
    first: usize,
}

// SAFETY: addresses are used by `read_packet` alone, and lie in the mappings of the map, which may be used from any thread.
unsafe impl Send for ReceiveWindow {}

impl ReceiveWindow {
    /// Adds the buffers of `run` behind those that are there.
    ///
    /// # Errors
    /// The run was checked against another map of memory than the others. Then none of its buffers is added.
    pub fn push(&mut self, run: &Segments) -> Result<(), Outside> {
        let map = run.shared_map().ok_or(Outside)?;
        if !Arc::ptr_eq(self.map.get_or_insert_with(|| map.clone()), map) {
            return Err(Outside);
        }
        let (entries_before, last_before) = (self.list.len(), self.list.last().copied());
        let list = &mut self.list;
        let added = run.iter().try_for_each(|segment| {
            entries(map, segment, |entry| match list.last_mut() {
                Some(last) if last.iov_base.wrapping_byte_add(last.iov_len) == entry.iov_base => {
                    last.iov_len += entry.iov_len;
                }
                _ => list.push(entry),
            })
        });
        if added.is_err() {
            self.list.truncate(entries_before);
            if let (Some(last), Some(before)) = (self.list.last_mut(), last_before) {
                *last = before;
            }
        }
        added
    }

    /// Takes the first `bytes` bytes away: they are the driver's again.
    pub fn take_front(&mut self, bytes: u64) {
        let mut rest = usize::try_from(bytes).unwrap_or(usize::MAX);
        while let Some(entry) = self.list.get_mut(self.first) {
            if rest < entry.iov_len {
                entry.iov_base = entry.iov_base.wrapping_byte_add(rest);
                entry.iov_len -= rest;
                break;
            }
            rest -= entry.iov_len;
            self.first += 1;
        }
        if self.first == self.list.len() {
            self.clear();
        } else if self.first >= FILLED_MAX {
            self.list.drain(..std::mem::take(&mut self.first));
        }
    }

    /// Takes all buffers away, and lets go of the map.
    pub fn clear(&mut self) {
        self.map = None;
        self.list.clear();
        self.first = 0;
    }

    /// Reads one packet from `link` into the buffers, or returns an error if the packet is longer than they are.
    pub fn read_packet(&mut self, link: BorrowedFd<'_>) -> io::Result<Packet> {
        // One byte more than the guest gave, to see that a packet was cut off.
        let mut surplus = 0u8;
        let here = libc::iovec { iov_base: (&raw mut surplus).cast(), iov_len: 1 };
        if self.list.len() - self.first >= IOV_MAX {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        self.list.push(here);
        let entries = &self.list[self.first..];
        let result = retry(|| {
            // SAFETY: the entries were made from checked guest memory that the map keeps, or have been cut at their front since; the
            // last one is a byte on this stack, which outlives the call.
            unsafe { libc::readv(link.as_raw_fd(), entries.as_ptr(), entries.len() as i32) }
        });
        self.list.pop();
        let length = result? as u64;
        let room: u64 = self.list[self.first..].iter().map(|entry| entry.iov_len as u64).sum();
        Ok(if length > room { Packet::TooLong } else { Packet::Whole { length } })
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
    use std::os::unix::net::UnixDatagram;

    use vm_memory::{Bytes as _, GuestAddress, GuestRegionMmap};

    use super::*;
    use crate::virtio::GuestMemory;
    use crate::virtio::chain::Chain;

    fn map() -> Arc<MemoryMap> {
        let region = |base| GuestRegionMmap::from_range(GuestAddress(base), 0x2000, None).unwrap();
        GuestMemory::new(vec![region(0), region(0x2000)]).unwrap().writable()
    }

    fn run(map: &Arc<MemoryMap>, segments: &[(u64, u32)]) -> Segments {
        let mut run = Chain::default().writable;
        for (address, length) in segments {
            run.push(Segment { address: GuestAddress(*address), length: *length }, || map.clone());
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

    /// A window over these buffers, and a link whose other end sends it packets.
    fn window(map: &Arc<MemoryMap>, runs: &[&[(u64, u32)]]) -> (ReceiveWindow, UnixDatagram, UnixDatagram) {
        let mut window = ReceiveWindow::default();
        runs.iter().for_each(|segments| window.push(&run(map, segments)).unwrap());
        let (here, there) = UnixDatagram::pair().unwrap();
        (window, here, there)
    }

    #[test]
    fn buffers_that_adjoin_are_one_entry() {
        let map = map();
        let (mut window, link, wire) =
            window(&map, &[&[(0x100, 0x10)], &[(0x110, 0x10), (0x200, 0x10)], &[(0x210, 8)]]);
        assert_eq!(window.list.len(), 2);
        wire.send(&[7; 0x28]).unwrap();
        assert_eq!(window.read_packet(link.as_fd()).unwrap(), Packet::Whole { length: 0x28 });
        for (address, bytes) in [(0x100, [7; 8]), (0x118, [7; 8]), (0x200, [7; 8]), (0x208, [0; 8])] {
            assert_eq!(map.read_obj::<[u8; 8]>(GuestAddress(address)).unwrap(), bytes, "{address:#x}");
        }
    }

    #[test]
    fn what_was_taken_away_is_not_received_into() {
        let map = map();
        let (mut window, link, wire) = window(&map, &[&[(0x100, 0x10)], &[(0x110, 0x10)], &[(0x200, 0x10)]]);
        window.take_front(0x10);
        for (at, byte) in [(0x110, 7), (0x200, 9)] {
            wire.send(&[byte; 8]).unwrap();
            window.read_packet(link.as_fd()).unwrap();
            assert_eq!(map.read_obj::<[u8; 8]>(GuestAddress(at)).unwrap(), [byte; 8]);
            window.take_front(0x10);
        }
        assert_eq!(map.read_obj::<[u8; 8]>(GuestAddress(0x100)).unwrap(), [0; 8]);
        assert!(window.map.is_none() && window.list.is_empty());
    }

    #[test]
    fn a_packet_that_is_longer_than_the_window_is_seen() {
        let (mut window, link, wire) = window(&map(), &[&[(0x100, 0x10)]]);
        wire.send(&[7; 0x11]).unwrap();
        assert_eq!(window.read_packet(link.as_fd()).unwrap(), Packet::TooLong);
        wire.send(&[7; 0x10]).unwrap();
        assert_eq!(window.read_packet(link.as_fd()).unwrap(), Packet::Whole { length: 0x10 });
    }

    #[test]
    fn buffers_of_another_map_and_none_outside_memory_are_added() {
        let here = map();
        let (mut window, link, wire) = window(&here, &[&[(0x100, 0x10)]]);
        assert_eq!(window.push(&run(&map(), &[(0x110, 0x10)])), Err(Outside));
        // The first adjoins what is there, and must not stay of a run that is refused.
        assert_eq!(window.push(&run(&here, &[(0x110, 0x10), (0x4000, 1)])), Err(Outside));
        wire.send(&[7; 0x11]).unwrap();
        assert_eq!(window.read_packet(link.as_fd()).unwrap(), Packet::TooLong);
    }

    #[test]
    fn filled_entries_do_not_pile_up() {
        let map = map();
        let mut window = ReceiveWindow::default();
        for round in 0..1000 {
            let address = 0x100 + 0x20 * (round % 16);
            window.push(&run(&map, &[(address, 0x10), (0x1000 + address, 0x10)])).unwrap();
            if round > 0 {
                window.take_front(0x20);
            }
            assert!(window.list.len() <= FILLED_MAX + 4, "{}", window.list.len());
        }
    }
}
