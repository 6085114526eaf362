//! The three areas of a split virtqueue in guest memory (virtio 1.2, section 2.7), read and written in place.
//!
//! ```text
//!   descriptors   buffers of chains                     written by the driver
//!   available     heads of chains, and their count      written by the driver
//!   used          heads with lengths, and their count   written by the device
//! ```
//!
//! The crate virtio-queue searches the memory map for each word instead: a fifth of the instructions of a
//! stream. It also publishes chains one by one, and drivers then lost frames over several chains.
//!
//! An area is looked up once for each map of memory, and not at each access. The driver may have written
//! anything, and may change it before the next read, so every reader must check it.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use virtio_queue::desc::split::Descriptor;
use virtio_queue::{Queue, QueueT as _};
use vm_memory::{
    AtomicAccess, ByteValued, Bytes as _, GuestAddress, GuestMemory as _, GuestMemoryRegion as _,
    GuestRegionMmap, MemoryRegionAddress, VolatileMemory as _, VolatileSlice,
};

use super::MemoryMap;

/// Bytes of a descriptor, of an entry of the available ring, and of one of the used ring.
const DESCRIPTOR_BYTES: usize = 16;
const AVAILABLE_BYTES: usize = 2;
const USED_BYTES: usize = 8;

/// Offsets in both rings: flags, the index, and the first entry. The event index of the other side's ring
/// follows the last entry.
const FLAGS: usize = 0;
const INDEX: usize = 2;
const ENTRIES: usize = 4;
const EVENT_BYTES: usize = 2;

/// The areas of a queue under one map of memory.
#[derive(Debug)]
pub(super) struct QueueAreas {
    descriptors: Area,
    available: Area,
    used: Area,
    size: usize,
    /// The map of the memory open to device writes. The areas lie in it.
    map: Arc<MemoryMap>,
}

/// Bytes in one part of guest memory.
#[derive(Debug)]
struct Area {
    part: Arc<GuestRegionMmap>,
    offset: MemoryRegionAddress,
    bytes: usize,
}

impl Area {
    /// Finds an area within one part of memory. A driver allocates it in one piece, so it lies in one part.
    fn find(map: &MemoryMap, address: u64, bytes: usize, alignment: u64) -> Option<Area> {
        let (part, offset) = map.part(GuestAddress(address), bytes)?;
        let aligned = address.is_multiple_of(alignment);
        aligned.then(|| Area { part: part.clone(), offset, bytes })
    }

    fn slice(&self) -> VolatileSlice<'_> {
        self.part.get_slice(self.offset, self.bytes).expect("the part has these bytes")
    }

    fn load<T: AtomicAccess>(&self, at: usize, order: Ordering) -> T {
        self.slice().load(at, order).expect("the place is aligned and lies in the area")
    }

    fn store<T: AtomicAccess>(&self, value: T, at: usize, order: Ordering) {
        self.slice().store(value, at, order).expect("the place is aligned and lies in the area");
    }
}

impl QueueAreas {
    /// Finds the areas of a queue in memory open to device writes. Returns `None` if they are not there.
    pub(super) fn find(queue: &Queue, map: Arc<MemoryMap>) -> Option<QueueAreas> {
        let size = usize::from(queue.size());
        if size == 0 {
            return None;
        }
        let descriptors = Area::find(&map, queue.desc_table(), size * DESCRIPTOR_BYTES, 16)?;
        let available = ENTRIES + size * AVAILABLE_BYTES + EVENT_BYTES;
        let available = Area::find(&map, queue.avail_ring(), available, 2)?;
        let used = Area::find(&map, queue.used_ring(), ENTRIES + size * USED_BYTES + EVENT_BYTES, 4)?;
        Some(QueueAreas { descriptors, available, used, size, map })
    }

    /// Returns the areas' map of memory.
    pub(super) fn map(&self) -> &Arc<MemoryMap> {
        &self.map
    }

    /// Returns the driver's count of available chains. Later reads see everything written before it.
    pub(super) fn available_index(&self) -> u16 {
        u16::from_le(self.available.load(INDEX, Ordering::Acquire))
    }

    /// Returns the head of available chain number `count`.
    pub(super) fn available_head(&self, count: u16) -> u16 {
        let entry = ENTRIES + usize::from(count) % self.size * AVAILABLE_BYTES;
        u16::from_le(self.available.load(entry, Ordering::Relaxed))
    }

    /// Returns the available ring's flags.
    pub(super) fn available_flags(&self) -> u16 {
        u16::from_le(self.available.load(FLAGS, Ordering::Relaxed))
    }

    /// Returns the used count at which the driver wants a notification.
    pub(super) fn used_event(&self) -> u16 {
        let event = ENTRIES + self.size * AVAILABLE_BYTES;
        u16::from_le(self.available.load(event, Ordering::Relaxed))
    }

    /// Writes the entry of used chain number `count`. The driver does not look at it yet.
    pub(super) fn set_used(&self, count: u16, head: u16, length: u32) {
        let entry = ENTRIES + usize::from(count) % self.size * USED_BYTES;
        // Entries are aligned to four bytes, and are two numbers.
        self.used.store(u32::from(head).to_le(), entry, Ordering::Relaxed);
        self.used.store(length.to_le(), entry + 4, Ordering::Relaxed);
    }

    /// Publishes the count of used chains, with everything written before.
    pub(super) fn set_used_index(&self, count: u16) {
        self.used.store(count.to_le(), INDEX, Ordering::Release);
    }

    /// Sets the used ring's flags.
    pub(super) fn set_used_flags(&self, flags: u16) {
        self.used.store(flags.to_le(), FLAGS, Ordering::Relaxed);
    }

    /// Sets the available chain at which the device wants a notification.
    pub(super) fn set_available_event(&self, count: u16) {
        self.used.store(count.to_le(), ENTRIES + self.size * USED_BYTES, Ordering::Relaxed);
    }

    /// Returns the descriptors of the chain starting at `head`.
    pub(super) fn chain(&self, head: u16) -> Descriptors<'_> {
        let table = self.descriptors.slice();
        Descriptors { table, map: &self.map, next: Some(head), left: self.size, indirect: false }
    }
}

/// The descriptors of one chain. An indirect descriptor is replaced by its table's descriptors. Ends early if
/// the chain is malformed.
#[derive(Debug)]
pub(super) struct Descriptors<'a> {
    table: VolatileSlice<'a>,
    map: &'a MemoryMap,
    /// The next entry; `None` after the last one.
    next: Option<u16>,
    /// Descriptors left for the chain: at most the size of its table.
    left: usize,
    indirect: bool,
}

impl Descriptors<'_> {
    /// Returns true if the chain's last descriptor was reached.
    pub(super) fn ended(&self) -> bool {
        self.next.is_none()
    }

    /// Continues in the indirect table of `descriptor` (section 2.7.5.3). Returns `None` if the table is
    /// malformed, or there was one already.
    fn enter(&mut self, descriptor: Descriptor) -> Option<()> {
        let bytes = descriptor.len() as usize;
        // Entries have 16-bit indices.
        let has_names = u16::try_from(bytes / DESCRIPTOR_BYTES).is_ok();
        if self.indirect || !bytes.is_multiple_of(DESCRIPTOR_BYTES) || !has_names {
            return None;
        }
        self.table = self.map.get_slice(descriptor.addr(), bytes).ok()?;
        (self.next, self.left, self.indirect) = (Some(0), bytes / DESCRIPTOR_BYTES, true);
        Some(())
    }
}

impl Iterator for Descriptors<'_> {
    type Item = Descriptor;

    fn next(&mut self) -> Option<Descriptor> {
        loop {
            let place = usize::from(self.next?) * DESCRIPTOR_BYTES;
            self.left = self.left.checked_sub(1)?;
            let descriptor: Descriptor = read(&self.table, place)?;
            if descriptor.refers_to_indirect_table() {
                self.enter(descriptor)?;
                continue;
            }
            self.next = descriptor.has_next().then(|| descriptor.next());
            return Some(descriptor);
        }
    }
}

fn read<T: ByteValued>(slice: &VolatileSlice<'_>, at: usize) -> Option<T> {
    slice.get_ref(at).ok().map(|place| place.load())
}
