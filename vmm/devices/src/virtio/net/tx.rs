//! The transmit queue: frames from the driver's buffers, straight into the tap.

use std::os::fd::BorrowedFd;

use super::drops::Drops;
use super::{HEADER_BYTES, MERGED_BYTES_MAX};
use crate::virtio::chain::Chain;
use crate::virtio::iovec::Iovecs;
use crate::virtio::ring::Ring;

/// Bytes of the shortest frame: an Ethernet header.
const FRAME_BYTES_MIN: u64 = 14;

/// The transmit queue at work.
#[derive(Debug)]
pub(super) struct Tx {
    pub(super) ring: Ring,
    chain: Chain,
    iovecs: Iovecs,
}

impl Tx {
    pub(super) fn new(ring: Ring) -> Tx {
        Tx { ring, chain: Chain::default(), iovecs: Iovecs::default() }
    }

    /// Sends one frame. Returns whether there was one.
    pub(super) fn transmit(&mut self, tap: BorrowedFd<'_>, drops: &Drops) -> bool {
        let Some(taken) = self.ring.take(&mut self.chain) else { return false };
        // A full or stopped tap loses the frame, as a wire does: protocols above send it again.
        if taken.fault.is_some() || self.send(tap).is_none() {
            drops.sent();
        }
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
