//! A device's end of one queue: takes chains, gives them back, asks for and sends notifications.
//!
//! It adds common protections to the queue's areas. A hostile driver's indices stop the queue instead of
//! spinning it, and malformed chains are counted, not logged.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering, fence};

use virtio_bindings::virtio_ring::{VRING_AVAIL_F_NO_INTERRUPT, VRING_USED_F_NO_NOTIFY};
use virtio_queue::{Queue, QueueT as _};
use vm_memory::Bytes as _;

use super::chain::{Chain, ChainFault, Segment};
use super::queue_areas::QueueAreas;
use super::{Counts, DeviceError, GuestMemory, Interrupt};

/// Counter of a guest's faults, shared between a device and its worker.
#[derive(Clone, Debug, Default)]
pub struct Faults(Arc<AtomicU64>);

impl Faults {
    /// Adds one.
    pub fn count(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    /// Returns the count so far.
    pub fn total(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    /// Returns the counts of a device without other counters.
    pub fn counts(&self) -> Counts {
        Counts { faults: self.total(), ..Counts::default() }
    }
}

/// A taken chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "a chain that is taken must be completed or put back"]
pub struct Taken {
    /// The chain's number for its completion.
    pub head: u16,
    /// The fault in the chain, if there is one.
    pub fault: Option<ChainFault>,
}

/// A queue at work.
#[derive(Debug)]
pub struct Ring {
    queue: Queue,
    memory: GuestMemory,
    /// The queue's areas, as of the change with the number below. `None` if they are not in memory.
    areas: Option<QueueAreas>,
    change: u64,
    faults: Faults,
    /// The driver's indices were invalid. No chain is taken until the device is reset.
    broken: bool,
    /// Count of used chains at the last check of the driver's wish for notifications.
    asked_at: u16,
}

impl Ring {
    /// Takes a queue over. A queue not set up by the driver is an error of `device`.
    pub fn open(
        device: &'static str,
        queue: Queue,
        memory: &GuestMemory,
        faults: &Faults,
    ) -> Result<Self, DeviceError> {
        if !queue.ready() {
            return Err(DeviceError { device, message: "the driver left a queue disabled".into() });
        }
        Ok(Ring {
            // The number first: if a change comes in between, the next look finds it.
            change: memory.changes(),
            areas: QueueAreas::find(&queue, memory.writable()),
            memory: memory.clone(),
            asked_at: queue.next_used(),
            queue,
            faults: faults.clone(),
            broken: false,
        })
    }

    /// Returns the number of changes of the writable map at the last take of chains.
    pub fn change(&mut self) -> u64 {
        self.renew();
        self.change
    }

    /// Updates the areas to the present writable map.
    fn renew(&mut self) {
        let change = self.memory.changes();
        if change != self.change {
            (self.change, self.areas) = (change, QueueAreas::find(&self.queue, self.memory.writable()));
        }
        if self.areas.is_none() {
            self.stop();
        }
    }

    /// Stops taking chains.
    fn stop(&mut self) {
        if !std::mem::replace(&mut self.broken, true) {
            self.faults.count();
        }
    }

    /// Returns the present areas, unless the queue is broken.
    fn areas(&mut self) -> Option<&QueueAreas> {
        self.renew();
        if self.broken { None } else { self.areas.as_ref() }
    }

    /// Returns the number of entries.
    pub fn size(&self) -> u16 {
        self.queue.size()
    }

    /// Loads the next available chain into `chain`; `None` when there is none, and then `chain` is empty.
    pub fn take(&mut self, chain: &mut Chain) -> Option<Taken> {
        // An idle device must keep no image open.
        chain.clear();
        let (next, size) = (self.queue.next_avail(), self.queue.size());
        let areas = self.areas()?;
        let waiting = areas.available_index().wrapping_sub(next);
        if waiting == 0 {
            return None;
        }
        if waiting > size {
            self.stop();
            return None;
        }
        let head = areas.available_head(next);
        self.queue.set_next_avail(next.wrapping_add(1));
        Some(self.load(head, chain))
    }

    /// Loads the chain starting at `head`.
    fn load(&self, head: u16, chain: &mut Chain) -> Taken {
        let Some(areas) = &self.areas else { return Taken { head, fault: Some(ChainFault::Outside) } };
        let fault = chain.load(areas.chain(head), &self.memory, areas.map()).err();
        if fault.is_some() {
            self.faults.count();
        }
        Taken { head, fault }
    }

    /// Makes the last `count` taken chains available again, for the queue's next user.
    pub fn put_back(&mut self, count: u16) {
        self.queue.set_next_avail(self.queue.next_avail().wrapping_sub(count));
    }

    /// Gives a chain back to the driver with `written` bytes written.
    pub fn complete(&mut self, taken: Taken, written: u32) {
        self.fill(taken, written);
        self.publish();
    }

    /// Records a chain as used. The driver sees it after the next [`publish`](Self::publish), because a
    /// driver may look for all chains of a frame as soon as it sees the first.
    pub fn fill(&mut self, taken: Taken, written: u32) {
        // A head beyond the table is no chain. There is nothing to give back.
        if taken.head >= self.queue.size() {
            return;
        }
        let count = self.queue.next_used();
        let Some(areas) = self.areas() else { return };
        areas.set_used(count, taken.head, written);
        self.queue.set_next_used(count.wrapping_add(1));
    }

    /// Makes all recorded used chains visible to the driver.
    pub fn publish(&mut self) {
        let count = self.queue.next_used();
        if let Some(areas) = self.areas() {
            areas.set_used_index(count);
        }
    }

    /// Writes an answer to a place in an earlier taken chain. Returns `None` if it does not fit, or if the
    /// writable memory has changed and no longer has the place.
    pub fn write(&mut self, place: &[Segment], data: &[u8]) -> Option<()> {
        let map = self.areas()?.map();
        let mut rest = data;
        for segment in place {
            let (now, later) = rest.split_at(rest.len().min(segment.length as usize));
            map.write_slice(now, segment.address).ok()?;
            rest = later;
        }
        rest.is_empty().then_some(())
    }

    /// Asks the driver for notifications before the worker sleeps. Returns true if chains came in meanwhile,
    /// because the driver will not notify of them.
    #[must_use]
    pub fn listen(&mut self) -> bool {
        let (events, next) = (self.queue.event_idx_enabled(), self.queue.next_avail());
        let Some(areas) = self.areas() else { return false };
        if events {
            areas.set_available_event(next);
        } else {
            areas.set_used_flags(0);
        }
        // The driver reads this request after it has made a chain available. The device reads the chains
        // after the request.
        fence(Ordering::SeqCst);
        areas.available_index() != next
    }

    /// Informs the driver that it need not notify, until [`listen`](Self::listen) asks for it.
    pub fn mute(&mut self) {
        let (events, next) = (self.queue.event_idx_enabled(), self.queue.next_avail());
        let Some(areas) = self.areas() else { return };
        if events {
            // A chain already made available. The driver notifies of a new chain by the index before it.
            areas.set_available_event(next.wrapping_sub(1));
        } else {
            areas.set_used_flags(VRING_USED_F_NO_NOTIFY as u16);
        }
    }

    /// Interrupts the driver if it wants to know of the chains completed since the last time.
    pub fn signal(&mut self, interrupt: &dyn Interrupt) {
        if self.is_awaited() {
            self.interrupt(interrupt);
        }
    }

    /// Returns true if the driver wants to know of the chains completed since the last check. After the check
    /// they count as known.
    #[must_use]
    pub fn is_awaited(&mut self) -> bool {
        if !self.has_news() {
            return false;
        }
        let (events, used) = (self.queue.event_idx_enabled(), self.queue.next_used());
        let asked_at = std::mem::replace(&mut self.asked_at, used);
        let Some(areas) = self.areas() else { return true };
        // The driver writes its request for notifications before it reads the used chains. The device reads
        // the request after writing them.
        fence(Ordering::SeqCst);
        if events {
            // True if the requested count lies among the chains used since then (virtio 1.2, section
            // 2.7.7.2).
            let behind = used.wrapping_sub(areas.used_event()).wrapping_sub(1);
            return behind < used.wrapping_sub(asked_at);
        }
        areas.available_flags() & VRING_AVAIL_F_NO_INTERRUPT as u16 == 0
    }

    /// Returns true if any chain was completed since the last check of the driver's wish.
    pub fn has_news(&self) -> bool {
        self.asked_at != self.queue.next_used()
    }

    /// Interrupts the driver.
    pub fn interrupt(&self, interrupt: &dyn Interrupt) {
        if interrupt.used_buffer().is_err() {
            self.faults.count();
        }
    }

    /// Returns the queue in its current state.
    pub fn into_queue(self) -> Queue {
        self.queue
    }
}

#[cfg(test)]
#[path = "ring_tests.rs"]
mod tests;
