//! One descriptor chain, read once out of guest memory and checked (virtio 1.2, section 2.7).
//!
//! A driver may split a request over buffers as it likes, so a device sees two runs of bytes: what it
//! reads and what it writes. The chain is copied out before it is looked at: a guest that changes its
//! descriptors afterwards changes nothing here. Buffers themselves are never copied by this module.

use virtio_queue::DescriptorChain;
use vm_memory::{Bytes as _, GuestAddress, GuestMemory as _, GuestMemoryMmap};

/// Descriptors in one chain, indirect ones included: what `preadv` takes at once, and four times what
/// our queues hold.
pub const SEGMENTS_MAX: usize = 1024;

/// A buffer of the driver: never empty.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment {
    /// Guest-physical address.
    pub address: GuestAddress,
    /// Bytes.
    pub length: u32,
}

/// What is wrong with a chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ChainFault {
    /// It loops, leaves the table, nests indirect tables or is too long: its end is not known.
    #[error("the chain does not end")]
    Endless,
    /// A buffer to be read follows one to be written.
    #[error("a readable buffer follows a writable one")]
    Order,
    /// A buffer is not in guest memory.
    #[error("a buffer lies outside guest memory")]
    Outside,
}

/// A run of bytes over some buffers, taken from either end.
#[derive(Clone, Debug, Default)]
pub struct Segments {
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

    fn clear(&mut self) {
        self.list.clear();
        self.first = 0;
        self.bytes = 0;
    }

    fn push(&mut self, segment: Segment) {
        if segment.length > 0 {
            self.bytes += u64::from(segment.length);
            self.list.push(segment);
        }
    }

    /// Takes the first `data.len()` bytes away and copies them out. `None` if there are fewer, or they
    /// are not in guest memory.
    pub fn take_front(&mut self, memory: &GuestMemoryMmap, data: &mut [u8]) -> Option<()> {
        let mut done = 0;
        while done < data.len() {
            let segment = self.list.get_mut(self.first)?;
            let count = (data.len() - done).min(segment.length as usize);
            memory.read_slice(&mut data[done..done + count], segment.address).ok()?;
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

    /// Takes the last byte away and says where it is.
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

    /// Copies `data` to `offset` within the run. `None` if it does not fit, or is not in guest memory.
    pub fn write_at(&self, memory: &GuestMemoryMmap, offset: u64, data: &[u8]) -> Option<()> {
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
            memory.write_slice(now, GuestAddress(segment.address.0.checked_add(skip)?)).ok()?;
            (rest, skip) = (later, 0);
        }
        rest.is_empty().then_some(())
    }
}

/// A chain as a device sees it. Kept and loaded again, so that its lists are allocated once.
#[derive(Clone, Debug, Default)]
pub struct Chain {
    /// What the driver wrote for the device.
    pub readable: Segments,
    /// Where the device writes.
    pub writable: Segments,
}

impl Chain {
    /// Takes all buffers of `descriptors`. After a fault other than [`ChainFault::Endless`] both runs
    /// are complete all the same, so that a device can still place an answer.
    pub fn load(&mut self, descriptors: &DescriptorChain<&GuestMemoryMmap>) -> Result<(), ChainFault> {
        self.readable.clear();
        self.writable.clear();
        let memory = descriptors.memory();
        let mut fault = Ok(());
        let mut ended = false;
        for (count, descriptor) in descriptors.clone().enumerate() {
            if count == SEGMENTS_MAX {
                return Err(ChainFault::Endless);
            }
            let segment = Segment { address: descriptor.addr(), length: descriptor.len() };
            if segment.length > 0 && !memory.check_range(segment.address, segment.length as usize) {
                fault = fault.and(Err(ChainFault::Outside));
            }
            if descriptor.is_write_only() {
                self.writable.push(segment);
            } else {
                if self.writable.bytes() > 0 {
                    fault = fault.and(Err(ChainFault::Order));
                }
                self.readable.push(segment);
            }
            ended = !descriptor.has_next();
        }
        if ended { fault } else { Err(ChainFault::Endless) }
    }
}
