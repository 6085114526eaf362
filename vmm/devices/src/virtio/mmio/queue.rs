//! A queue's registers: the driver's values, checked before any use.
//!
//! Nothing here touches a ring; this module only decides whether rings of this size may lie there.

use serde::{Deserialize, Serialize};
use virtio_queue::{Queue, QueueState};
use vm_memory::{GuestAddress, GuestMemory as _};

use crate::virtio::GuestMemory;

/// One split queue as set up by the driver, with its positions while the device is paused.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct QueueRegisters {
    /// Largest size offered, a power of two.
    pub max_size: u16,
    /// Entries, chosen by the driver: a power of two, `1..=max_size`.
    pub size: u16,
    /// The driver has finished setting it up.
    pub ready: bool,
    /// Guest-physical address of the descriptor table, 16-byte aligned.
    pub desc_table: u64,
    /// Guest-physical address of the available ring, 2-byte aligned.
    pub avail_ring: u64,
    /// Guest-physical address of the used ring, 4-byte aligned.
    pub used_ring: u64,
    /// Next entry of the available ring to be taken.
    pub next_avail: u16,
    /// Next entry of the used ring to be written.
    pub next_used: u16,
}

impl QueueRegisters {
    /// Returns a queue after reset.
    pub(super) fn new(max_size: u16) -> Self {
        QueueRegisters {
            max_size,
            size: max_size,
            ready: false,
            desc_table: 0,
            avail_ring: 0,
            used_ring: 0,
            next_avail: 0,
            next_used: 0,
        }
    }

    /// Takes a size from the driver. An invalid one leaves the old one.
    pub(super) fn set_size(&mut self, size: u32) {
        if let Ok(size) = u16::try_from(size)
            && size.is_power_of_two()
            && size <= self.max_size
        {
            self.size = size;
        }
    }

    /// Returns true if size, alignment and place of the rings are allowed (virtio 1.2, section 2.7).
    pub(super) fn is_valid(&self, memory: &GuestMemory) -> bool {
        let (entries, map) = (usize::from(self.size), memory.writable());
        let within = |address: u64, align: u64, length: usize| {
            address != 0
                && address.is_multiple_of(align)
                && address.checked_add(length as u64).is_some()
                && map.check_range(GuestAddress(address), length)
        };
        self.size.is_power_of_two()
            && self.size <= self.max_size
            && within(self.desc_table, 16, 16 * entries)
            && within(self.avail_ring, 2, 6 + 2 * entries)
            && within(self.used_ring, 4, 6 + 8 * entries)
    }

    /// Returns the queue for the device, or `None` if the registers are not valid. If the queue is not ready,
    /// the result is a queue never set up.
    pub(super) fn to_queue(&self, event_idx: bool, memory: &GuestMemory) -> Option<Queue> {
        if self.ready && !self.is_valid(memory) {
            return None;
        }
        let source = if self.ready { self } else { &QueueRegisters::new(self.max_size) };
        let state = QueueState {
            max_size: source.max_size,
            next_avail: source.next_avail,
            next_used: source.next_used,
            event_idx_enabled: event_idx,
            size: source.size,
            ready: source.ready,
            desc_table: source.desc_table,
            avail_ring: source.avail_ring,
            used_ring: source.used_ring,
        };
        Queue::try_from(state).ok()
    }

    /// Takes the positions of a queue from a paused device.
    pub(super) fn set_positions(&mut self, queue: &Queue) {
        let state = queue.state();
        self.next_avail = state.next_avail;
        self.next_used = state.next_used;
    }
}

#[cfg(test)]
mod tests {
    use vm_memory::GuestRegionMmap;

    use super::*;

    fn memory() -> GuestMemory {
        GuestMemory::new(vec![GuestRegionMmap::from_range(GuestAddress(0), 0x1_0000, None).unwrap()]).unwrap()
    }

    fn registers() -> QueueRegisters {
        QueueRegisters {
            ready: true,
            desc_table: 0x1000,
            avail_ring: 0x2000,
            used_ring: 0x3000,
            ..QueueRegisters::new(16)
        }
    }

    #[test]
    fn sizes_that_are_not_allowed_leave_the_old_one() {
        let mut queue = QueueRegisters::new(16);
        for size in [0, 3, 32, 65536, u32::MAX] {
            queue.set_size(size);
            assert_eq!(queue.size, 16, "{size}");
        }
        queue.set_size(8);
        assert_eq!(queue.size, 8);
    }

    #[test]
    fn rings_must_be_aligned_and_within_memory() {
        assert!(registers().is_valid(&memory()));
        for wrong in [
            QueueRegisters { desc_table: 0x1008, ..registers() },
            QueueRegisters { avail_ring: 0x2001, ..registers() },
            QueueRegisters { used_ring: 0x3002, ..registers() },
            QueueRegisters { desc_table: 0xff10, ..registers() },
            QueueRegisters { avail_ring: 0xffff_ffff_ffff_fffe, ..registers() },
            QueueRegisters { used_ring: 0, ..registers() },
            QueueRegisters { size: 5, ..registers() },
        ] {
            assert!(!wrong.is_valid(&memory()), "{wrong:?}");
            assert!(wrong.to_queue(false, &memory()).is_none());
        }
    }

    #[test]
    fn a_ring_may_end_at_the_last_byte_of_memory() {
        let queue = QueueRegisters { desc_table: 0x1_0000 - 16 * 16, ..registers() };
        assert!(queue.is_valid(&memory()));
    }
}
