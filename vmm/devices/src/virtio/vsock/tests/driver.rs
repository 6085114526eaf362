//! The driver's end of a queue: descriptors, available and used rings in plain guest memory.
//!
//! Knows nothing of vsock. This driver can write nonsense as well as sense: descriptors go in as given.

use virtio_queue::{Queue, QueueT};
use vm_memory::{Bytes, GuestAddress};

use crate::virtio::GuestMemory;

/// Descriptor flags (virtio 1.2 section 2.7.5).
pub(super) const NEXT: u16 = 1;
pub(super) const WRITE: u16 = 2;

/// Entries of each queue.
pub(super) const SIZE: u16 = 256;

/// Guest memory for a queue's rings.
pub(super) const RING_BYTES: u64 = 0x4000;

const AVAILABLE: u64 = 0x1000;
const USED: u64 = 0x2000;

/// One descriptor, as in memory.
#[derive(Clone, Copy, Debug)]
pub(super) struct Descriptor {
    pub(super) address: u64,
    pub(super) length: u32,
    pub(super) flags: u16,
    pub(super) next: u16,
}

/// A queue as its driver sees it.
#[derive(Debug)]
pub(super) struct DriverQueue {
    memory: GuestMemory,
    base: u64,
    offered: u16,
    seen: u16,
}

impl DriverQueue {
    pub(super) fn new(memory: &GuestMemory, base: u64) -> DriverQueue {
        DriverQueue { memory: memory.clone(), base, offered: 0, seen: 0 }
    }

    /// The device's view, as the transport would make it.
    pub(super) fn device_side(&self) -> Queue {
        let mut queue = Queue::new(SIZE).unwrap();
        let low = |offset: u64| Some((self.base + offset) as u32);
        queue.set_desc_table_address(low(0), Some(0));
        queue.set_avail_ring_address(low(AVAILABLE), Some(0));
        queue.set_used_ring_address(low(USED), Some(0));
        queue.set_ready(true);
        queue
    }

    pub(super) fn describe(&self, index: u16, descriptor: Descriptor) {
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(&descriptor.address.to_le_bytes());
        bytes[8..12].copy_from_slice(&descriptor.length.to_le_bytes());
        bytes[12..14].copy_from_slice(&descriptor.flags.to_le_bytes());
        bytes[14..].copy_from_slice(&descriptor.next.to_le_bytes());
        self.memory.writable().write_slice(&bytes, GuestAddress(self.base + u64::from(index) * 16)).unwrap();
    }

    /// Offers the chain starting at `head`.
    pub(super) fn offer(&mut self, head: u16) {
        let slot = u64::from(self.offered % SIZE);
        self.store(AVAILABLE + 4 + slot * 2, head);
        self.offered = self.offered.wrapping_add(1);
        self.store(AVAILABLE + 2, self.offered);
    }

    /// Writes an index beyond the offered chains.
    pub(super) fn offer_index(&mut self, index: u16) {
        self.store(AVAILABLE + 2, index);
    }

    /// Returns the next chain used by the device: its head and the bytes written. Asks for an interrupt at
    /// the one after it.
    pub(super) fn take_used(&mut self) -> Option<(u16, u32)> {
        // used_event, at the end of the available ring.
        self.store(AVAILABLE + 4 + u64::from(SIZE) * 2, self.seen);
        std::sync::atomic::fence(std::sync::atomic::Ordering::SeqCst);
        let index: u16 = self.memory.writable().load(GuestAddress(self.base + USED + 2), ORDER).unwrap();
        if index == self.seen {
            return None;
        }
        let entry = self.base + USED + 4 + u64::from(self.seen % SIZE) * 8;
        let head: u32 = self.memory.writable().read_obj(GuestAddress(entry)).unwrap();
        let length: u32 = self.memory.writable().read_obj(GuestAddress(entry + 4)).unwrap();
        self.seen = self.seen.wrapping_add(1);
        Some((u16::try_from(head).unwrap(), length))
    }

    fn store(&self, offset: u64, value: u16) {
        self.memory.writable().store(value, GuestAddress(self.base + offset), ORDER).unwrap();
    }
}

const ORDER: std::sync::atomic::Ordering = std::sync::atomic::Ordering::SeqCst;
