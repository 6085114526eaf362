//! A queue of this device: a ring with all chains in one direction, and its notifications.
//!
//! A lane decides when the driver should notify us, and when to interrupt it. It passes chains on without
//! understanding them. If the driver left the queue disabled, or has corrupted it, the lane yields nothing.

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
    /// Work on [`Lane::buffer`], then call [`Lane::used`] or [`Lane::put_back`].
    Chain(Taken),
    /// An unusable chain. It went back to the driver and was counted.
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
    /// The ring's index claims chains that cannot be read.
    stuck: bool,
    /// The driver is asked not to notify.
    muted: bool,
    /// A buffer was used since the driver's last interrupt.
    buffer_used: bool,
}

impl Lane {
    /// Returns a lane over a ring in its current state.
    pub(super) fn new(ring: Ring, faults: Faults, access: Access) -> Lane {
        let chain = Chain::default();
        Lane { ring, faults, access, chain, stuck: false, muted: false, buffer_used: false }
    }

    /// Returns the ring, for the queue's next user.
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

    /// Returns the bytes of the last chain from [`next`](Self::next).
    pub(super) fn buffer(&self) -> Buffer<'_> {
        match self.access {
            Access::Read => Buffer::new(&self.chain.readable),
            Access::Write => Buffer::new(&self.chain.writable),
        }
    }

    /// Called when the device is done with the chain and wrote `length` bytes into it.
    pub(super) fn used(&mut self, taken: Taken, length: u32) {
        self.ring.complete(taken, length);
        self.chain.clear();
        self.buffer_used = true;
    }

    /// Leaves the last chain from [`next`](Self::next) to be taken again.
    pub(super) fn put_back(&mut self, _taken: Taken) {
        self.ring.put_back(1);
        self.chain.clear();
    }

    /// Interrupts the driver if it wants to know of used chains.
    pub(super) fn notify(&mut self, interrupt: &dyn Interrupt) {
        if std::mem::take(&mut self.buffer_used) {
            self.ring.signal(interrupt);
        }
    }

    /// Returns the number of chains offered by the driver. The driver raises the queue's event at the next
    /// one.
    pub(super) fn on_offer(&mut self) -> u16 {
        let mut count = 0;
        // One round: the ring holds at most its size, and refuses an index beyond it.
        while count < self.ring.size() && self.ring.take(&mut self.chain).is_some() {
            count += 1;
        }
        self.muted = false;
        // The driver must notify from the present position on. A chain that came meanwhile counts too.
        let more = self.ring.listen();
        self.ring.put_back(count);
        self.chain.clear();
        count.saturating_add(u16::from(more))
    }
}
