//! Counts of the device in a slot, and of the device's backlog of requests.

use std::sync::atomic::Ordering;

use vm_memory::{Bytes as _, GuestAddress};

use super::{Activity, MmioTransport, QueueRegisters};
use crate::virtio::Counts;

/// Offset of `idx` in the available and in the used ring (virtio 1.2, sections 2.7.6 and 2.7.8).
const INDEX_OFFSET: u64 = 2;

impl MmioTransport {
    /// Returns the device's counts, and the number of the driver's waiting or unfinished requests; `None` for
    /// an empty slot. The guest writes both counters of a ring, so it can claim any number up to the size of
    /// its queues.
    pub fn counts(&self) -> Option<(Counts, u32)> {
        let device = self.device.as_ref()?;
        let queues = device.request_queues().iter().filter_map(|index| self.queues.get(*index));
        let runs = matches!(self.activity, Activity::Running(_));
        let queued =
            queues.filter(|queue| runs && queue.ready).map(|queue| u32::from(self.queued(queue))).sum();
        Some((device.counts(), queued))
    }

    fn queued(&self, queue: &QueueRegisters) -> u16 {
        let memory = self.memory.writable();
        let index =
            |ring: u64| memory.load(GuestAddress(ring.checked_add(INDEX_OFFSET)?), Ordering::Acquire).ok();
        // If the guest has given the memory back, there are no counters.
        let (Some(available), Some(used)): (Option<u16>, Option<u16>) =
            (index(queue.avail_ring), index(queue.used_ring))
        else {
            return 0;
        };
        u16::from_le(available).wrapping_sub(u16::from_le(used)).min(queue.size)
    }
}
