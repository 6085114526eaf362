//! Buffers for packets read directly from a tap: a list of addresses, kept from one packet to the next.
//!
//! Like [`iovec`](super::iovec), it passes addresses of guest memory to the kernel. The buffers were checked
//! against a map of memory, and the window keeps the map as long as the addresses.

use std::io;
use std::os::fd::{AsRawFd as _, BorrowedFd};
use std::sync::Arc;

use super::MemoryMap;
use super::chain::Segments;
use super::iovec::{IOV_MAX, Outside, entries, retry};

/// Filled entries of a window before the others move up.
const FILLED_MAX: usize = 64;

/// Buffers for the next packets. The window keeps addresses from one packet to the next. Adjoining buffers
/// are one entry, because drivers cut them from one piece of memory.
#[derive(Debug, Default)]
pub struct ReceiveWindow {
    /// The map used to check all buffers; `None` if there is no buffer.
    map: Option<Arc<MemoryMap>>,
    list: Vec<libc::iovec>,
    /// Entries before this one are filled.
    first: usize,
}

// SAFETY: addresses are used by `read_packet` alone, and lie in the mappings of the map, and those may be
// used from any thread.
unsafe impl Send for ReceiveWindow {}

impl ReceiveWindow {
    /// Adds the buffers of `run` after the present ones.
    ///
    /// # Errors
    /// The run was checked against another map of memory than the others. Then none of its buffers is added.
    pub fn push(&mut self, run: &Segments) -> Result<(), Outside> {
        let map = run.map().ok_or(Outside)?;
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

    /// Removes the first `bytes` bytes: they are the driver's again.
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

    /// Removes all buffers, and lets go of the map.
    pub fn clear(&mut self) {
        self.map = None;
        self.list.clear();
        self.first = 0;
    }

    /// Reads one packet from `link` into the buffers, or returns an error if the packet is longer than they
    /// are.
    pub fn read_packet(&mut self, link: BorrowedFd<'_>) -> io::Result<Packet> {
        // One byte more than the guest's buffers, to detect a truncated packet.
        let mut surplus = 0u8;
        let here = libc::iovec { iov_base: (&raw mut surplus).cast(), iov_len: 1 };
        let end = self.list.len().min(self.first + IOV_MAX - 1);
        let covered = self.list.get_mut(end).map(|entry| std::mem::replace(entry, here));
        if covered.is_none() {
            self.list.push(here);
        }
        let entries = &self.list[self.first..=end];
        let result = retry(|| {
            // SAFETY: the entries were made from checked guest memory that the map keeps, or have been cut at
            // their front since; the last one is a byte on this stack, and it outlives the call.
            unsafe { libc::readv(link.as_raw_fd(), entries.as_ptr(), entries.len() as i32) }
        });
        match covered {
            Some(entry) => self.list[end] = entry,
            None => self.list.truncate(end),
        }
        let length = result? as u64;
        let room: u64 = self.list[self.first..end].iter().map(|entry| entry.iov_len as u64).sum();
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

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd as _;
    use std::os::unix::net::UnixDatagram;

    use vm_memory::{Bytes as _, GuestAddress};

    use super::*;
    use crate::virtio::testing::{run, two_parts};

    /// A window over these buffers, and a link for sending packets to it.
    fn window(map: &Arc<MemoryMap>, runs: &[&[(u64, u32)]]) -> (ReceiveWindow, UnixDatagram, UnixDatagram) {
        let mut window = ReceiveWindow::default();
        runs.iter().for_each(|segments| window.push(&run(map, segments)).unwrap());
        let (here, there) = UnixDatagram::pair().unwrap();
        (window, here, there)
    }

    #[test]
    fn buffers_that_adjoin_are_one_entry() {
        let map = two_parts();
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
        let map = two_parts();
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
        let (mut window, link, wire) = window(&two_parts(), &[&[(0x100, 0x10)]]);
        wire.send(&[7; 0x11]).unwrap();
        assert_eq!(window.read_packet(link.as_fd()).unwrap(), Packet::TooLong);
        wire.send(&[7; 0x10]).unwrap();
        assert_eq!(window.read_packet(link.as_fd()).unwrap(), Packet::Whole { length: 0x10 });
    }

    #[test]
    fn more_buffers_than_the_kernel_takes_at_once_are_left_for_later() {
        let map = two_parts();
        let apart: Vec<(u64, u32)> = (0..1500).map(|number| (2 * number, 1)).collect();
        let (mut window, link, wire) = window(&map, &[&apart]);
        for (bytes, outcome) in [(1023, Packet::Whole { length: 1023 }), (1024, Packet::TooLong)] {
            wire.send(&vec![7; bytes]).unwrap();
            assert_eq!(window.read_packet(link.as_fd()).unwrap(), outcome);
        }
        window.take_front(1023);
        wire.send(&[9; 477]).unwrap();
        assert_eq!(window.read_packet(link.as_fd()).unwrap(), Packet::Whole { length: 477 });
        assert_eq!(map.read_obj::<[u8; 4]>(GuestAddress(2 * 1022)).unwrap(), [7, 0, 9, 0]);
    }

    #[test]
    fn buffers_of_another_map_and_none_outside_memory_are_added() {
        let here = two_parts();
        let (mut window, link, wire) = window(&here, &[&[(0x100, 0x10)]]);
        assert_eq!(window.push(&run(&two_parts(), &[(0x110, 0x10)])), Err(Outside));
        // The first entry adjoins the present ones. If the run is refused, the entry must not stay.
        assert_eq!(window.push(&run(&here, &[(0x110, 0x10), (0x4000, 1)])), Err(Outside));
        wire.send(&[7; 0x11]).unwrap();
        assert_eq!(window.read_packet(link.as_fd()).unwrap(), Packet::TooLong);
    }

    #[test]
    fn filled_entries_do_not_pile_up() {
        let map = two_parts();
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
