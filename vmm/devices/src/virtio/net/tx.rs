//! The transmit queue: frames from the driver's buffers, directly into the tap.

use std::os::fd::BorrowedFd;

use super::drops::Drops;
use super::{HEADER_BYTES, MERGED_BYTES_MAX};
use crate::virtio::Interrupt;
use crate::virtio::chain::Chain;
use crate::virtio::iovec::Iovecs;
use crate::virtio::ring::Ring;

/// Bytes of the shortest frame: an Ethernet header.
const FRAME_BYTES_MIN: u64 = 14;

/// Sent frames and bytes without an immediate notification of the driver. After so little, a driver still has
/// room for more in its queue, and in its sockets' buffers.
const UNHEARD_FRAMES_MAX: u32 = 16;
const UNHEARD_BYTES_MAX: u64 = 16 << 10;

/// The transmit queue at work.
#[derive(Debug)]
pub(super) struct Tx {
    pub(super) ring: Ring,
    /// Frames and bytes sent since the driver's last notification.
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

    /// Returns true if the driver has not been notified of all sent frames.
    pub(super) fn has_unheard(&self) -> bool {
        self.ring.has_news()
    }

    /// Interrupts the driver if enough was sent for an immediate notification.
    pub(super) fn signal_much(&mut self, interrupt: &dyn Interrupt) {
        if self.unheard_frames >= UNHEARD_FRAMES_MAX || self.unheard_bytes >= UNHEARD_BYTES_MAX {
            self.signal(interrupt);
        }
    }

    /// Interrupts the driver if it wants to know of sent frames.
    pub(super) fn signal(&mut self, interrupt: &dyn Interrupt) {
        self.ring.signal(interrupt);
        (self.unheard_frames, self.unheard_bytes) = (0, 0);
    }

    /// Called after an interrupt for another queue: the driver looks at all of them.
    pub(super) fn heard(&mut self) {
        let _ = self.ring.is_awaited();
        (self.unheard_frames, self.unheard_bytes) = (0, 0);
    }

    /// Sends one frame. Returns true if there was one.
    pub(super) fn transmit(&mut self, tap: BorrowedFd<'_>, drops: &Drops) -> bool {
        let Some(taken) = self.ring.take(&mut self.chain) else { return false };
        // A full or stopped tap loses the frame, as a wire does. Protocols above send it again.
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
