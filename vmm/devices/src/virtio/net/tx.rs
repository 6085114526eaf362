//! The transmit queue: frames from the driver's buffers, straight into the tap.

use std::os::fd::BorrowedFd;

use super::drops::Drops;
use super::{HEADER_BYTES, MERGED_BYTES_MAX};
use crate::virtio::Interrupt;
use crate::virtio::chain::Chain;
use crate::virtio::iovec::Iovecs;
use crate::virtio::ring::Ring;

/// Bytes of the shortest frame: an Ethernet header.
const FRAME_BYTES_MIN: u64 = 14;

/// Frames that were sent, and their bytes, of which a driver need not hear at once. A driver that has sent so little has room for
/// more in its queue, and in its sockets' buffers.
const UNHEARD_FRAMES_MAX: u32 = 16;
const UNHEARD_BYTES_MAX: u64 = 16 << 10;

/// The transmit queue at work.
#[derive(Debug)]
pub(super) struct Tx {
    pub(super) ring: Ring,
    /// Frames and bytes that were sent since the driver last heard of any.
    unheard_frames: u32,
    unheard_bytes: u64,
    chain: Chain,
    iovecs: Iovecs,
}

impl Tx {
    pub(super) fn new(ring: Ring) -> Tx {
        let (chain, iovecs) = (Chain::default(), Iovecs::default());
        Tx { ring, unheard_frames: 0, unheard_bytes: 0, chain, iovecs }
    }

    /// Whether frames were sent of which the driver has not heard.
    pub(super) fn has_unheard(&self) -> bool {
        self.ring.has_news()
    }

    /// Interrupts the driver if it is to hear at once of what was sent.
    pub(super) fn signal_much(&mut self, interrupt: &dyn Interrupt) {
        if self.unheard_frames >= UNHEARD_FRAMES_MAX || self.unheard_bytes >= UNHEARD_BYTES_MAX {
            self.signal(interrupt);
        }
    }

    /// Interrupts the driver if it wants to know of what was sent.
    pub(super) fn signal(&mut self, interrupt: &dyn Interrupt) {
        self.ring.signal(interrupt);
        (self.unheard_frames, self.unheard_bytes) = (0, 0);
    }

    /// The driver has been interrupted for another queue, and looks at all of them.
    pub(super) fn heard(&mut self) {
        let _ = self.ring.is_awaited();
        (self.unheard_frames, self.unheard_bytes) = (0, 0);
    }

    /// Sends one frame. Returns whether there was one.
    pub(super) fn transmit(&mut self, tap: BorrowedFd<'_>, drops: &Drops) -> bool {
        let Some(taken) = self.ring.take(&mut self.chain) else { return false };
        // A full or stopped tap loses the frame, as a wire does: protocols above send it again.
        if taken.fault.is_some() || self.send(tap).is_none() {
            drops.sent();
        }
        self.unheard_frames += 1;
        self.unheard_bytes += self.chain.readable.bytes();
        self.ring.complete(taken, 0);
        true
    }

    fn send(&mut self, tap: BorrowedFd<'_>) -> Option<()> {
        let allowed = u64::from(HEADER_BYTES) + FRAME_BYTES_MIN..=MERGED_BYTES_MAX;
        if !allowed.contains(&self.chain.readable.bytes()) {
            return None;
        }
        self.iovecs.over([&self.chain.readable]).ok()?.write_packet(tap).ok().map(|_| ())
    }
}
