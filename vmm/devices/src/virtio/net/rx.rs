//! The receive queue: frames from the tap, straight into the driver's buffers.
//!
//! Chains are gathered ahead of the frames, since a frame's length is only known once it has been read:
//!
//! ```text
//!   available ──gather──> held ──a frame was read into the first n──> used
//!                          └──pause──> available again
//! ```

use std::io;
use std::os::fd::BorrowedFd;

use super::drops::Drops;
use super::held::HeldChains;
use super::{HEADER_BYTES, NUM_BUFFERS_OFFSET};
use crate::virtio::receive_window::{Packet, ReceiveWindow};
use crate::virtio::ring::{Ring, Taken};

/// Buffers held ahead at most: what one `readv` takes, less one to notice a frame that is cut off.
const SEGMENTS_HELD_MAX: usize = 1023;

/// The receive queue at work.
#[derive(Debug)]
pub(super) struct Rx {
    pub(super) ring: Ring,
    held: HeldChains,
    /// The buffers of all chains that are held.
    window: ReceiveWindow,
    /// The change of memory under which chains are held.
    change: u64,
    /// Bytes and buffers of all that is held.
    room: u64,
    segments: usize,
    /// A frame may lie over several chains.
    merge: bool,
    /// Room for any frame that may come, header included.
    frame_bytes_max: u64,
}

/// The outcome of trying to receive one frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Received {
    /// The frame is with the driver, or was dropped: there may be more.
    Frame,
    /// The tap has none.
    Drained,
    /// The driver has given too few buffers; the frame waits in the tap.
    Starved,
}

/// An offer of the driver's to receive into.
enum Offered {
    /// A chain, which is held now.
    Held,
    /// A chain that no frame can lie in.
    Bad(Taken),
    /// No chain.
    Nothing,
}

impl Rx {
    pub(super) fn new(ring: Ring, merge: bool, frame_bytes_max: u64) -> Rx {
        let (held, window) = (HeldChains::default(), ReceiveWindow::default());
        Rx { ring, held, change: 0, room: 0, segments: 0, window, merge, frame_bytes_max }
    }

    /// Takes one frame off the tap and gives it to the driver.
    pub(super) fn receive(&mut self, tap: BorrowedFd<'_>, drops: &Drops) -> Received {
        if !self.gather() {
            return Received::Starved;
        }
        match self.window.read_packet(tap) {
            Ok(Packet::Whole { length }) if length >= u64::from(HEADER_BYTES) => {
                self.deliver(length);
                Received::Frame
            }
            Ok(_) => {
                drops.received();
                Received::Frame
            }
            // Nothing there; or the tap is down, and wakes the worker for new frames when it is up again.
            Err(error) => {
                if error.kind() != io::ErrorKind::WouldBlock {
                    drops.tap_error();
                }
                Received::Drained
            }
        }
    }

    /// Completes the chains that the frame lies in. The driver sees all of them at once.
    fn deliver(&mut self, length: u64) {
        let mut rest = length;
        let mut count = 0u16;
        for held in self.held.iter() {
            count += 1;
            rest = rest.saturating_sub(held.chain.writable.bytes());
            if rest == 0 {
                break;
            }
        }
        if let Some(first) = self.held.iter().next() {
            // The header lies where the frame was read to; a place that is cut short was checked for.
            let _ = first.chain.writable.write_at(NUM_BUFFERS_OFFSET, &count.to_le_bytes());
        }
        let mut rest = length;
        for _ in 0..count {
            let Some(held) = self.held.pop() else { break };
            let bytes = held.chain.writable.bytes();
            let written = rest.min(bytes);
            rest -= written;
            self.room -= bytes;
            self.segments -= held.segments;
            self.window.take_front(bytes);
            self.ring.fill(held.taken, written as u32);
        }
        self.ring.publish();
    }

    /// Holds enough chains for any frame. If the driver has given less, then half of the queue must do:
    /// a driver with small buffers that refills late would wait for ever else.
    fn gather(&mut self) -> bool {
        self.forget_if_memory_changed();
        for _ in 0..self.ring.size() {
            let enough = self.room >= self.frame_bytes_max || self.segments >= SEGMENTS_HELD_MAX;
            if enough || (!self.merge && !self.held.is_empty()) {
                return true;
            }
            match self.hold_one() {
                Offered::Held => {}
                Offered::Nothing => break,
                // What is put back at a pause must be in one piece: a bad chain waits for its turn.
                Offered::Bad(_) if !self.held.is_empty() => {
                    self.ring.put_back(1);
                    return true;
                }
                Offered::Bad(taken) => self.ring.complete(taken, 0),
            }
        }
        let wanted = if self.merge { usize::from(self.ring.size()).div_ceil(2) } else { 1 };
        self.held.len() >= wanted
    }

    /// Holds the chain that the driver offers next, if it is good for a frame.
    fn hold_one(&mut self) -> Offered {
        let mut offered = Offered::Nothing;
        self.held.push(|held| {
            let Some(taken) = self.ring.take(&mut held.chain) else { return false };
            let bytes = held.chain.writable.bytes();
            // A first buffer too short for the header could not say how many follow.
            let bad = taken.fault.is_some() || bytes < u64::from(HEADER_BYTES);
            // A chain that was taken under another map than those before it waits until these are taken anew.
            if bad || self.window.push(&held.chain.writable).is_err() {
                offered = Offered::Bad(taken);
                return false;
            }
            // Nobody reads from these, and what may be read changes with each image.
            held.chain.readable.clear();
            (held.taken, held.segments) = (taken, held.chain.writable.iter().count());
            self.room += bytes;
            self.segments += held.segments;
            offered = Offered::Held;
            true
        });
        offered
    }

    /// Chains that are held may lie in memory that the driver has given back since: they are taken anew.
    fn forget_if_memory_changed(&mut self) {
        let change = self.ring.change();
        if change != self.change {
            self.change = change;
            self.ring.put_back(self.held.len() as u16);
            self.held.clear();
            self.window.clear();
            (self.room, self.segments) = (0, 0);
        }
    }

    /// The queue, with the chains that were held but not used available again.
    pub(super) fn into_ring(mut self) -> Ring {
        self.ring.put_back(self.held.len() as u16);
        self.ring
    }
}
