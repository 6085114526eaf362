//! The driver's end of one queue, as an orderly driver has it: descriptors that are free, chains that are under way, and what came
//! back. It knows what the device may do with them, and fails where the device does something else.
//!
//! ```text
//!   base ┌────────────────┐ +0x100 ┌───────────┐ +0x140 ┌──────┐
//!        │ 16 descriptors │        │ available │        │ used │
//!        └────────────────┘        └───────────┘        └──────┘
//! ```
//!
//! Once something else may have written to the rings, nothing is expected any more.

use std::ops::Range;
use std::sync::atomic::{Ordering, fence};

use vm_memory::{Bytes as _, GuestAddress};
use vmm_devices::virtio::GuestMemory;

/// Most entries of a queue here.
pub const ENTRIES: u16 = 16;

/// Bytes that a queue takes in guest memory.
pub const QUEUE_BYTES: u64 = 0x200;

const AVAILABLE: u64 = 0x100;
const USED: u64 = 0x140;

/// A buffer is written by the device.
pub const WRITE: u16 = 2;
const NEXT: u16 = 1;

/// One buffer of a chain.
#[derive(Clone, Copy, Debug)]
pub struct Buffer {
    /// Guest-physical address.
    pub address: u64,
    /// Bytes.
    pub length: u32,
    /// Whether the device writes to it.
    pub writable: bool,
}

/// A chain that the device has.
#[derive(Clone, Debug)]
struct Chain {
    descriptors: Vec<u16>,
    writable_bytes: u64,
}

/// See the module.
#[derive(Debug)]
pub struct DriverQueue {
    base: u64,
    size: u16,
    free: Vec<u16>,
    under_way: Vec<Option<Chain>>,
    newest: Option<u16>,
    available: u16,
    used: u16,
    /// Nothing but this has written to the rings.
    orderly: bool,
}

impl DriverQueue {
    /// A queue of `size` entries, a power of two up to [`ENTRIES`], whose rings lie at `base`.
    #[must_use]
    pub fn new(base: u64, size: u16) -> DriverQueue {
        DriverQueue {
            base,
            size,
            free: (0..size).rev().collect(),
            under_way: vec![None; usize::from(size)],
            newest: None,
            available: 0,
            used: 0,
            orderly: true,
        }
    }

    /// Entries.
    #[must_use]
    pub fn size(&self) -> u16 {
        self.size
    }

    /// Addresses of descriptors, available and used ring.
    #[must_use]
    pub fn areas(&self) -> [u64; 3] {
        [self.base, self.base + AVAILABLE, self.base + USED]
    }

    /// All that the queue takes.
    #[must_use]
    pub fn range(&self) -> Range<u64> {
        self.base..self.base + QUEUE_BYTES
    }

    /// Somebody else may have written to the rings.
    pub fn spoil(&mut self) {
        self.orderly = false;
    }

    /// Whether nobody else has.
    #[must_use]
    pub fn is_orderly(&self) -> bool {
        self.orderly
    }

    /// Whether the device has chains that it has not given back.
    #[must_use]
    pub fn is_waiting(&self) -> bool {
        self.orderly && self.under_way.iter().any(Option::is_some)
    }

    /// Whether the device still has the chain that was offered last.
    #[must_use]
    pub fn has_newest(&self) -> bool {
        self.newest.is_some_and(|head| self.under_way[usize::from(head)].is_some())
    }

    /// Makes a chain of these buffers available, if there are as many descriptors.
    pub fn offer(&mut self, memory: &GuestMemory, buffers: &[Buffer]) -> bool {
        let descriptors: Vec<u16> = if buffers.len() > self.free.len() {
            Vec::new()
        } else {
            self.free.split_off(self.free.len() - buffers.len())
        };
        let Some(&head) = descriptors.first() else { return false };
        for (position, buffer) in buffers.iter().enumerate() {
            let next = descriptors.get(position + 1);
            let flags = if buffer.writable { WRITE } else { 0 } | if next.is_some() { NEXT } else { 0 };
            self.describe(
                memory,
                descriptors[position],
                (buffer.address, buffer.length, flags, *next.unwrap_or(&0)),
            );
        }
        let writable_bytes =
            buffers.iter().filter(|buffer| buffer.writable).map(|buffer| u64::from(buffer.length)).sum();
        self.under_way[usize::from(head)] = Some(Chain { descriptors, writable_bytes });
        self.newest = Some(head);
        self.offer_head(memory, head);
        true
    }

    /// Writes a descriptor, whatever is in it.
    pub fn describe(
        &self,
        memory: &GuestMemory,
        index: u16,
        (address, length, flags, next): (u64, u32, u16, u16),
    ) {
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(&address.to_le_bytes());
        bytes[8..12].copy_from_slice(&length.to_le_bytes());
        bytes[12..14].copy_from_slice(&flags.to_le_bytes());
        bytes[14..].copy_from_slice(&next.to_le_bytes());
        let place = self.base + 16 * u64::from(index % self.size);
        memory.writable().write_slice(&bytes, GuestAddress(place)).expect("the table lies in RAM");
    }

    /// Makes a chain available by its head, whatever that is.
    pub fn offer_head(&mut self, memory: &GuestMemory, head: u16) {
        let entry = self.base + AVAILABLE + 4 + 2 * u64::from(self.available % self.size);
        memory.writable().write_obj(head, GuestAddress(entry)).expect("the ring lies in RAM");
        self.jump(memory, self.available.wrapping_add(1));
    }

    /// Sets the count of available chains, whatever it was.
    pub fn jump(&mut self, memory: &GuestMemory, count: u16) {
        self.available = count;
        let place = GuestAddress(self.base + AVAILABLE + 2);
        memory.writable().store(count, place, Ordering::Release).expect("the ring lies in RAM");
    }

    /// Takes back what the device has used, and fails where that cannot be. Asks to hear of the next.
    pub fn take_used(&mut self, memory: &GuestMemory) {
        if !self.orderly {
            return;
        }
        let map = memory.writable();
        let event = GuestAddress(self.base + AVAILABLE + 4 + 2 * u64::from(self.size));
        map.store(self.used, event, Ordering::SeqCst).expect("the ring lies in RAM");
        fence(Ordering::SeqCst);
        let count: u16 =
            map.load(GuestAddress(self.base + USED + 2), Ordering::Acquire).expect("the ring lies in RAM");
        let news = count.wrapping_sub(self.used);
        let most = self.available.wrapping_sub(self.used);
        assert!(news <= most, "the device used {news} chains where it had {most}");
        while self.used != count {
            let entry = self.base + USED + 4 + 8 * u64::from(self.used % self.size);
            let [head, written]: [u32; 2] = map.read_obj(GuestAddress(entry)).expect("the ring lies in RAM");
            let chain = usize::try_from(head).ok().and_then(|head| self.under_way.get_mut(head)?.take());
            let Some(chain) = chain else { panic!("the device used chain {head}, which it did not have") };
            assert!(
                u64::from(written) <= chain.writable_bytes,
                "{written} bytes in room for {}",
                chain.writable_bytes
            );
            self.free.extend(chain.descriptors);
            self.used = self.used.wrapping_add(1);
        }
    }
}
