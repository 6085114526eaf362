//! A device's end of one queue: takes chains, gives them back, asks for and sends notifications.
//!
//! Wraps `virtio_queue::Queue` with what every device needs: the indices of a hostile driver stop the
//! queue instead of spinning it, and chains that make no sense are counted, not logged.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use virtio_queue::{DescriptorChain, Queue, QueueOwnedT as _, QueueT as _};
use vm_memory::GuestMemoryMmap;

use super::chain::{Chain, ChainFault};
use super::{DeviceError, GuestMemory, Interrupt};

/// Counts what a guest did wrong; shared between a device and its worker.
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
}

/// A chain that was taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "a chain that is taken must be completed or put back"]
pub struct Taken {
    /// The chain's name when it is completed.
    pub head: u16,
    /// The fault in the chain, if there is one.
    pub fault: Option<ChainFault>,
}

/// A queue at work.
#[derive(Debug)]
pub struct Ring {
    queue: Queue,
    memory: GuestMemory,
    faults: Faults,
    /// The driver's indices made no sense: nothing is taken any more until the device is reset.
    broken: bool,
    /// Something was completed since the driver was last interrupted.
    news: bool,
}

impl Ring {
    /// Takes a queue over. A queue that the driver has not set up is an error of `device`.
    pub fn open(
        device: &'static str,
        queue: Queue,
        memory: &GuestMemory,
        faults: &Faults,
    ) -> Result<Self, DeviceError> {
        if !queue.ready() {
            return Err(DeviceError { device, message: "the driver left a queue disabled".into() });
        }
        Ok(Ring { queue, memory: memory.clone(), faults: faults.clone(), broken: false, news: false })
    }

    /// Entries.
    pub fn size(&self) -> u16 {
        self.queue.size()
    }

    /// Loads the next available chain into `chain`; `None` when there is none.
    pub fn take(&mut self, chain: &mut Chain) -> Option<Taken> {
        self.take_with(chain, |_| ()).map(|(taken, _)| taken)
    }

    /// As [`take`](Self::take), and shows the descriptors of a chain without a fault to `also`, as they are
    /// in guest memory: for libraries that read them themselves. Descriptors may have changed since `chain` was
    /// loaded.
    pub fn take_with<T>(
        &mut self,
        chain: &mut Chain,
        also: impl FnOnce(&DescriptorChain<&GuestMemoryMmap>) -> T,
    ) -> Option<(Taken, Option<T>)> {
        if self.broken {
            return None;
        }
        let memory = self.memory.clone();
        let Ok(mut available) = self.queue.iter(&*memory) else {
            self.broken = true;
            self.faults.count();
            return None;
        };
        let descriptors = available.next()?;
        let head = descriptors.head_index();
        let fault = chain.load(&descriptors).err();
        if fault.is_some() {
            self.faults.count();
        }
        let outcome = fault.is_none().then(|| also(&descriptors));
        Some((Taken { head, fault }, outcome))
    }

    /// Makes the last `count` chains taken available again, for whoever takes the queue over.
    pub fn put_back(&mut self, count: u16) {
        self.queue.set_next_avail(self.queue.next_avail().wrapping_sub(count));
    }

    /// Gives a chain back to the driver with `written` bytes written.
    pub fn complete(&mut self, taken: Taken, written: u32) {
        // A head beyond the table names no chain: there is nothing to give back.
        if taken.head >= self.queue.size() {
            return;
        }
        self.news = true;
        if self.queue.add_used(&*self.memory, taken.head, written).is_err() {
            self.broken = true;
        }
    }

    /// Asks the driver to notify, now that the worker is about to sleep. Returns whether chains came in
    /// meanwhile, which nobody will notify of.
    #[must_use]
    pub fn listen(&mut self) -> bool {
        !self.broken && self.queue.enable_notification(&*self.memory).unwrap_or(false)
    }

    /// Lets the driver know that it need not notify.
    pub fn mute(&mut self) {
        if !self.broken && self.queue.disable_notification(&*self.memory).is_err() {
            self.broken = true;
        }
    }

    /// Interrupts the driver if it wants to know of what was completed since the last time.
    pub fn signal(&mut self, interrupt: &dyn Interrupt) {
        if !std::mem::take(&mut self.news) {
            return;
        }
        if self.queue.needs_notification(&*self.memory).unwrap_or(true) && interrupt.used_buffer().is_err() {
            self.faults.count();
        }
    }

    /// The queue as it stands.
    pub fn into_queue(self) -> Queue {
        self.queue
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::virtio::testing::{Driver, WRITE, memory};

    const BUFFER: u64 = 0x2_0000;

    fn ring(driver: &Driver) -> (Ring, Faults) {
        let faults = Faults::default();
        (Ring::open("test", driver.queue(), &driver.memory, &faults).unwrap(), faults)
    }

    #[test]
    fn chains_are_taken_once_and_given_back() {
        let mut driver = Driver::new(&memory(), 0);
        let (mut ring, faults) = ring(&driver);
        let mut chain = Chain::default();
        for round in 0..50 {
            let head = driver.put(&[(BUFFER, 16, WRITE), (BUFFER, 1, WRITE)]);
            let taken = ring.take(&mut chain).unwrap();
            assert_eq!(taken, Taken { head, fault: None });
            assert!(ring.take(&mut chain).is_none());
            ring.complete(taken, round);
            assert_eq!(driver.take_used(), [(head, round)]);
        }
        assert_eq!(faults.total(), 0);
    }

    #[test]
    fn what_is_put_back_is_taken_again() {
        let mut driver = Driver::new(&memory(), 0);
        let (mut ring, _) = ring(&driver);
        let mut chain = Chain::default();
        let first = driver.put(&[(BUFFER, 16, WRITE)]);
        driver.put(&[(BUFFER, 16, WRITE)]);
        while ring.take(&mut chain).is_some() {}
        ring.put_back(2);
        assert_eq!(ring.take(&mut chain).unwrap().head, first);
        assert_eq!(ring.into_queue().next_avail(), 1);
    }

    #[test]
    fn a_head_beyond_the_table_is_counted_and_not_given_back() {
        let mut driver = Driver::new(&memory(), 0);
        let (mut ring, faults) = ring(&driver);
        driver.offer(Driver::SIZE);
        let taken = ring.take(&mut Chain::default()).unwrap();
        ring.complete(taken, 0);
        assert_eq!((driver.take_used().len(), faults.total()), (0, 1));
    }

    #[test]
    fn an_index_that_jumps_breaks_the_ring_once() {
        let mut driver = Driver::new(&memory(), 0);
        let (mut ring, faults) = ring(&driver);
        driver.jump(Driver::SIZE + 1);
        assert!(ring.listen());
        for _ in 0..3 {
            assert!(ring.take(&mut Chain::default()).is_none());
        }
        assert!(!ring.listen());
        driver.jump(0);
        driver.put(&[(BUFFER, 1, 0)]);
        assert!(ring.take(&mut Chain::default()).is_none());
        assert_eq!(faults.total(), 1);
    }

    #[test]
    fn listening_reports_what_came_meanwhile() {
        let mut driver = Driver::new(&memory(), 0);
        let (mut ring, _) = ring(&driver);
        ring.mute();
        assert!(!ring.listen());
        driver.put(&[(BUFFER, 1, 0)]);
        assert!(ring.listen());
    }
}
