//! A queue of this device: a ring whose chains all go one way, with its etiquette of notifications.
//!
//! A lane owns whether the driver is asked to notify, and whether it is to be interrupted. Chains are passed on, not
//! understood. A queue that the driver left disabled, or has corrupted, gives nothing.

use crate::virtio::Interrupt;
use crate::virtio::chain::Chain;
use crate::virtio::ring::{Faults, Ring, Taken};

use super::buffer::Buffer;

/// The direction of a lane's buffers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Access {
    /// The device reads them (tx).
    Read,
    /// The device writes them (rx, events).
    Write,
}

/// A buffer of a lane.
#[derive(Debug)]
pub(super) enum Next {
    /// [`Lane::buffer`] is to be worked on, then [`Lane::used`] or [`Lane::put_back`].
    Chain(Taken),
    /// A chain that cannot be used; it went back to the driver and was counted.
    Malformed,
    /// Nothing now. The driver's next buffer raises the queue's event.
    Empty,
}

/// See the module.
#[derive(Debug)]
pub(super) struct Lane {
    ring: Ring,
    faults: Faults,
    access: Access,
    chain: Chain,
    /// The ring's index promises chains that cannot be read.
    stuck: bool,
    /// The driver is asked to keep quiet.
    muted: bool,
    /// A buffer was used since the driver was last interrupted.
    buffer_used: bool,
}

impl Lane {
    /// A lane over a ring as it stands.
    pub(super) fn new(ring: Ring, faults: Faults, access: Access) -> Lane {
        let chain = Chain::default();
        Lane { ring, faults, access, chain, stuck: false, muted: false, buffer_used: false }
    }

    /// The ring, for whoever takes the queue over.
    pub(super) fn into_ring(self) -> Ring {
        self.ring
    }

    /// Takes the next chain.
    pub(super) fn next(&mut self) -> Next {
        let mut promised = false;
        while !self.stuck {
            let Some(taken) = self.ring.take(&mut self.chain) else {
                self.stuck = promised;
                self.muted = false;
                if self.stuck || !self.ring.listen() {
                    break;
                }
                promised = true;
                continue;
            };
            if !self.muted {
                self.muted = true;
                self.ring.mute();
            }
            if taken.fault.is_none() && self.has_one_way() {
                return Next::Chain(taken);
            }
            if taken.fault.is_none() {
                self.faults.count();
            }
            self.used(taken, 0);
            return Next::Malformed;
        }
        Next::Empty
    }

    fn has_one_way(&self) -> bool {
        let (readable, writable) = (self.chain.readable.bytes(), self.chain.writable.bytes());
        match self.access {
            Access::Read => readable > 0 && writable == 0,
            Access::Write => writable > 0 && readable == 0,
        }
    }

    /// Bytes of the chain that [`next`](Self::next) gave last.
    pub(super) fn buffer(&self) -> Buffer<'_> {
        match self.access {
            Access::Read => Buffer::new(&self.chain.readable),
            Access::Write => Buffer::new(&self.chain.writable),
        }
    }

    /// The device is done with the chain and wrote `length` bytes into it.
    pub(super) fn used(&mut self, taken: Taken, length: u32) {
        self.ring.complete(taken, length);
        self.chain.clear();
        self.buffer_used = true;
    }

    /// Leaves the chain that [`next`](Self::next) gave last to be taken again.
    pub(super) fn put_back(&mut self, _taken: Taken) {
        self.ring.put_back(1);
        self.chain.clear();
    }

    /// Interrupts the driver if it wants to know of what was used.
    pub(super) fn notify(&mut self, interrupt: &dyn Interrupt) {
        if std::mem::take(&mut self.buffer_used) {
            self.ring.signal(interrupt);
        }
    }

    /// How many chains the driver has on offer. The driver raises the queue's event at the next one.
    pub(super) fn on_offer(&mut self) -> u16 {
        let mut count = 0;
        // One round: the ring holds no more than its size, and refuses an index that says otherwise.
        while count < self.ring.size() && self.ring.take(&mut self.chain).is_some() {
            count += 1;
        }
        self.muted = false;
        // Where it stands now is where the driver is to notify. One that came meanwhile counts too.
        let more = self.ring.listen();
        self.ring.put_back(count);
        self.chain.clear();
        count.saturating_add(u16::from(more))
    }
}
