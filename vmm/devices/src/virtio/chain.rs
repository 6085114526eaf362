//! One descriptor chain, read once from guest memory and checked (virtio 1.2, section 2.7).
//!
//! A driver may split a request over buffers in any way, so a device sees two runs of bytes: one to read, one
//! to write. The chain is copied before it is checked, so later changes of its descriptors by the guest have
//! no effect here. This module never copies the buffers themselves.
//!
//! A run holds the map used to check its buffers. A device may read from an image, but not write to it.

use std::sync::Arc;

use vm_memory::{Bytes as _, GuestAddress};

use super::queue_areas::Descriptors;
use super::{GuestMemory, MemoryMap};

/// Most descriptors in one chain, including indirect ones: the limit of `preadv`, and four times the size of
/// our queues.
pub const SEGMENTS_MAX: usize = 1024;

/// Bytes in one chain (virtio 1.2, section 2.7.5.2).
const CHAIN_BYTES_MAX: u64 = u32::MAX as u64;

/// A buffer of the driver: never empty.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment {
    /// Guest-physical address.
    pub address: GuestAddress,
    /// Bytes.
    pub length: u32,
}

/// A fault in a chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ChainFault {
    /// The chain loops, leaves the table, nests indirect tables or is too long. Its end is unknown.
    #[error("the chain does not end")]
    Endless,
    /// A buffer to be read follows one to be written.
    #[error("a readable buffer follows a writable one")]
    Order,
    /// A buffer is not in memory open to this kind of access by the device.
    #[error("a buffer lies outside guest memory")]
    Outside,
}

/// A run of bytes over some buffers, taken from either end.
#[derive(Clone, Debug, Default)]
pub struct Segments {
    /// The map used to check the buffers, from the first buffer on.
    map: Option<Arc<MemoryMap>>,
    list: Vec<Segment>,
    /// Buffers before this one are used up.
    first: usize,
    bytes: u64,
}

impl Segments {
    /// Bytes left.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Buffers left.
    pub fn iter(&self) -> impl Iterator<Item = Segment> + '_ {
        self.list[self.first..].iter().copied()
    }

    /// Returns the map used to check the buffers; `None` if there never was one.
    pub(super) fn map(&self) -> Option<&Arc<MemoryMap>> {
        self.map.as_ref()
    }

    /// Removes all buffers, and lets go of the map.
    pub fn clear(&mut self) {
        self.map = None;
        self.list.clear();
        self.first = 0;
        self.bytes = 0;
    }

    /// Adds a buffer, if it is not empty. Returns true if the buffer lies in the run's map. The first buffer
    /// sets it to `map`.
    pub(super) fn push(&mut self, segment: Segment, map: impl FnOnce() -> Arc<MemoryMap>) -> bool {
        if segment.length == 0 {
            return true;
        }
        self.bytes += u64::from(segment.length);
        self.list.push(segment);
        let map = self.map.get_or_insert_with(map);
        map.has(segment.address, segment.length as usize)
    }

    /// Removes everything after the first `bytes` bytes.
    pub fn truncate(&mut self, bytes: u32) {
        let mut room = bytes;
        for segment in &mut self.list[self.first..] {
            segment.length = segment.length.min(room);
            room -= segment.length;
        }
        while self.list.len() > self.first && self.list.last().is_some_and(|last| last.length == 0) {
            self.list.pop();
        }
        self.bytes = self.bytes.min(u64::from(bytes));
    }

    /// Removes the first `data.len()` bytes and copies them out. Returns `None` if there are fewer, or they
    /// are not in guest memory.
    pub fn take_front(&mut self, data: &mut [u8]) -> Option<()> {
        let mut done = 0;
        while done < data.len() {
            let segment = self.list.get_mut(self.first)?;
            let count = (data.len() - done).min(segment.length as usize);
            let map = self.map.as_ref()?;
            map.read_slice(&mut data[done..done + count], segment.address).ok()?;
            segment.address = GuestAddress(segment.address.0.checked_add(count as u64)?);
            segment.length -= count as u32;
            self.bytes -= count as u64;
            done += count;
            if segment.length == 0 {
                self.first += 1;
            }
        }
        Some(())
    }

    /// Removes the last byte and returns its address.
    pub fn take_last(&mut self) -> Option<GuestAddress> {
        let segment = self.list[self.first..].last_mut()?;
        segment.length -= 1;
        self.bytes -= 1;
        let address = segment.address.0.checked_add(u64::from(segment.length)).map(GuestAddress);
        if segment.length == 0 {
            self.list.pop();
        }
        address
    }

    /// Copies `data` to `offset` within the run. Returns `None` if it does not fit, or is not in guest
    /// memory.
    pub fn write_at(&self, offset: u64, data: &[u8]) -> Option<()> {
        let mut skip = offset;
        let mut rest = data;
        for segment in self.iter() {
            if rest.is_empty() {
                break;
            }
            let length = u64::from(segment.length);
            if skip >= length {
                skip -= length;
                continue;
            }
            let (now, later) = rest.split_at(rest.len().min((length - skip) as usize));
            self.map()?.write_slice(now, GuestAddress(segment.address.0.checked_add(skip)?)).ok()?;
            (rest, skip) = (later, 0);
        }
        rest.is_empty().then_some(())
    }

    /// Writes one byte at an address from [`take_last`](Self::take_last). Returns `None` if it is not in
    /// guest memory.
    pub fn write_byte(&self, address: GuestAddress, byte: u8) -> Option<()> {
        self.map()?.write_obj(byte, address).ok()
    }
}

/// A chain as a device sees it. It is kept and loaded again, so its lists are allocated once.
#[derive(Clone, Debug, Default)]
pub struct Chain {
    /// Buffers with data from the driver.
    pub readable: Segments,
    /// Buffers for the device to write.
    pub writable: Segments,
}

impl Chain {
    /// Takes all buffers of a chain in `memory`. After a fault other than [`ChainFault::Endless`] both runs
    /// are still complete, so a device can place an answer.
    pub(super) fn load(
        &mut self,
        mut descriptors: Descriptors<'_>,
        memory: &GuestMemory,
        writable: &Arc<MemoryMap>,
    ) -> Result<(), ChainFault> {
        self.clear();
        let mut fault = Ok(());
        for (count, descriptor) in descriptors.by_ref().enumerate() {
            let bytes = self.readable.bytes() + self.writable.bytes() + u64::from(descriptor.len());
            if count == SEGMENTS_MAX || bytes > CHAIN_BYTES_MAX {
                return Err(ChainFault::Endless);
            }
            let segment = Segment { address: descriptor.addr(), length: descriptor.len() };
            let inside = if descriptor.is_write_only() {
                self.writable.push(segment, || writable.clone())
            } else {
                if self.writable.bytes() > 0 {
                    fault = fault.and(Err(ChainFault::Order));
                }
                self.readable.push(segment, || memory.readable())
            };
            if !inside {
                fault = fault.and(Err(ChainFault::Outside));
            }
        }
        if descriptors.ended() { fault } else { Err(ChainFault::Endless) }
    }

    /// Removes all buffers, and lets go of the maps.
    pub fn clear(&mut self) {
        self.readable.clear();
        self.writable.clear();
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::virtio::ring::{Faults, Ring};
    use crate::virtio::testing::{Driver, INDIRECT, MEMORY, NEXT, WRITE, entries, memory};

    const BUFFER: u64 = 0x2_0000;
    const TABLE: u64 = 0x4_0000;

    /// Loads the one chain offered by `driver`.
    fn load(driver: &Driver) -> (Chain, Option<ChainFault>) {
        let mut ring = Ring::open("test", driver.queue(), &driver.memory, &Faults::default()).unwrap();
        let mut chain = Chain::default();
        let taken = ring.take(&mut chain).unwrap();
        (chain, taken.fault)
    }

    fn offered(buffers: &[(u64, u32, u16)]) -> (Chain, Option<ChainFault>, Driver) {
        let mut driver = Driver::new(&memory(), 0);
        driver.put(buffers);
        let (chain, fault) = load(&driver);
        (chain, fault, driver)
    }

    #[test]
    fn both_runs_are_taken_in_order_and_empty_buffers_left_out() {
        let buffers = [(BUFFER, 8, 0), (BUFFER, 0, 0), (BUFFER + 8, 8, 0), (BUFFER + 16, 4, WRITE)];
        let (mut chain, fault, driver) = offered(&buffers);
        assert_eq!((fault, chain.readable.bytes(), chain.writable.bytes()), (None, 16, 4));
        driver.write(BUFFER, &[1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12]);
        let mut data = [0; 10];
        chain.readable.take_front(&mut data).unwrap();
        assert_eq!(data, [1, 2, 3, 4, 5, 6, 7, 8, 9, 10]);
        let rest = Segment { address: GuestAddress(BUFFER + 10), length: 6 };
        assert_eq!(chain.readable.iter().collect::<Vec<_>>(), [rest]);
        assert!(chain.readable.take_front(&mut data).is_none());
    }

    #[test]
    fn the_last_byte_is_taken_from_the_end() {
        let (mut chain, _, _) = offered(&[(BUFFER, 1, WRITE), (BUFFER + 8, 2, WRITE)]);
        let taken: Vec<_> = std::iter::from_fn(|| chain.writable.take_last()).map(|a| a.0 - BUFFER).collect();
        assert_eq!((taken, chain.writable.bytes()), (vec![9, 8, 0], 0));
    }

    #[test]
    fn writes_beyond_the_run_are_refused() {
        let (chain, _, driver) = offered(&[(BUFFER, 3, WRITE), (BUFFER + 8, 3, WRITE)]);
        chain.writable.write_at(2, &[7, 8]).unwrap();
        assert_eq!(driver.read::<9>(BUFFER), [0, 0, 7, 0, 0, 0, 0, 0, 8]);
        assert!(chain.writable.write_at(5, &[7, 8]).is_none());
        assert!(chain.writable.write_at(u64::MAX, &[7]).is_none());
    }

    #[test]
    fn order_and_place_are_checked() {
        assert_eq!(offered(&[(BUFFER, 1, WRITE), (BUFFER, 1, 0)]).1, Some(ChainFault::Order));
        for (address, length) in [(MEMORY as u64 - 1, 2), (u64::MAX, 1), (0, u32::MAX)] {
            assert_eq!(offered(&[(address, length, 0)]).1, Some(ChainFault::Outside), "{address:#x}");
        }
        assert_eq!(offered(&[(MEMORY as u64 - 1, 1, 0)]).1, None);
    }

    #[test]
    fn chains_without_an_end_are_seen() {
        let mut driver = Driver::new(&memory(), 0);
        let table = driver.table();
        driver.descriptor(table, 3, (BUFFER, 1, NEXT, 4));
        driver.descriptor(table, 4, (BUFFER, 1, NEXT, 3));
        driver.offer(3);
        assert_eq!(load(&driver).1, Some(ChainFault::Endless));
        driver.descriptor(table, 3, (BUFFER, 1, NEXT, Driver::SIZE));
        assert_eq!(load(&driver).1, Some(ChainFault::Endless));
        // More bytes than virtio allows in one chain.
        driver.descriptor(table, 3, (0, u32::MAX, NEXT, 5));
        driver.descriptor(table, 5, (0, u32::MAX, 0, 0));
        assert_eq!(load(&driver).1, Some(ChainFault::Endless));
    }

    #[test]
    fn indirect_tables_are_followed_once() {
        let mut driver = Driver::new(&memory(), 0);
        driver.descriptor(TABLE, 0, (BUFFER, 4, NEXT, 1));
        driver.descriptor(TABLE, 1, (BUFFER + 4, 4, WRITE, 0));
        driver.put(&[(TABLE, 32, INDIRECT)]);
        let (chain, fault) = load(&driver);
        assert_eq!((fault, chain.readable.bytes(), chain.writable.bytes()), (None, 4, 4));
        // A table with one entry more than the largest index allows.
        driver.descriptor(driver.table(), 0, (TABLE, 16 * 0x1_0000, INDIRECT, 0));
        assert_eq!(load(&driver).1, Some(ChainFault::Endless));
        // A table within a table, a table of odd length, an empty one, one outside memory.
        driver.descriptor(TABLE, 1, (TABLE, 32, INDIRECT, 0));
        assert_eq!(load(&driver).1, Some(ChainFault::Endless));
        for (address, length) in [(TABLE, 33), (TABLE, 0), (1 << 40, 32)] {
            driver.descriptor(driver.table(), 0, (address, length, INDIRECT, 0));
            assert_eq!(load(&driver).1, Some(ChainFault::Endless), "{address:#x} {length}");
        }
    }

    #[test]
    fn a_long_indirect_table_is_cut_off() {
        let mut driver = Driver::new(&memory(), 0);
        for index in 0..SEGMENTS_MAX as u16 + 1 {
            driver.descriptor(TABLE, index, (BUFFER, 1, NEXT, index + 1));
        }
        driver.descriptor(TABLE, SEGMENTS_MAX as u16, (BUFFER, 1, 0, 0));
        driver.put(&[(TABLE, 16 * (SEGMENTS_MAX as u32 + 1), INDIRECT)]);
        let (chain, fault) = load(&driver);
        assert_eq!((fault, chain.readable.bytes()), (Some(ChainFault::Endless), SEGMENTS_MAX as u64));
        // One fewer is the maximum.
        driver.descriptor(TABLE, SEGMENTS_MAX as u16 - 1, (BUFFER, 1, 0, 0));
        assert_eq!(load(&driver).1, None);
    }

    proptest! {
        #[test]
        fn a_chain_without_a_fault_lies_in_memory(table in entries(), head in 0u16..16) {
            let mut driver = Driver::new(&memory(), 0);
            for (index, entry) in (0u16..).zip(&table) {
                driver.descriptor(driver.table(), index, *entry);
            }
            driver.offer(head);
            let (mut chain, fault) = load(&driver);
            if fault.is_none() {
                for segment in chain.readable.iter().chain(chain.writable.iter()) {
                    prop_assert!(segment.length > 0);
                    prop_assert!(segment.address.0 + u64::from(segment.length) <= MEMORY as u64);
                }
            }
            let total: u64 = chain.writable.iter().map(|segment| u64::from(segment.length)).sum();
            prop_assert_eq!(total, chain.writable.bytes());
            let mut data = [0; 100];
            let fits = chain.readable.bytes() >= 100;
            let taken = chain.readable.take_front(&mut data).is_some();
            prop_assert!(taken == fits || fault.is_some());
            if fault.is_none() && chain.writable.bytes() < 100_000 {
                while chain.writable.take_last().is_some() {}
                prop_assert_eq!(chain.writable.bytes(), 0);
            }
        }
    }
}
