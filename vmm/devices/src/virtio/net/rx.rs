//! The receive queue: frames from the tap, directly into the driver's buffers.
//!
//! Chains are gathered in advance, because a frame's length is known only after it has been read:
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

/// Most buffers held in advance: the limit of one `readv`, less one to detect a truncated frame.
const SEGMENTS_HELD_MAX: usize = 1023;

/// The receive queue at work.
#[derive(Debug)]
pub(super) struct Rx {
    pub(super) ring: Ring,
    held: HeldChains,
    /// The buffers of all held chains.
    window: ReceiveWindow,
    /// The number of memory changes at the time the held chains were taken.
    change: u64,
    /// Bytes and buffers of all held chains.
    room: u64,
    segments: usize,
    /// A frame may use several chains.
    merge: bool,
    /// Room for any possible frame, including the header.
    frame_bytes_max: u64,
}

/// The outcome of trying to receive one frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Received {
    /// The frame is with the driver, or was dropped: there may be more.
    Frame,
    /// The tap has no frame.
    Drained,
    /// The driver has given too few buffers; the frame waits in the tap.
    Starved,
}

/// The next thing offered by the driver.
enum Offered {
    /// A chain; it is held now.
    Held,
    /// A chain unusable for any frame.
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

    /// Completes the frame's chains. The driver sees all of them at once.
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
            // The header lies at the start of the first chain; a too short place was refused before.
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

    /// Holds enough chains for any frame. If the driver has given less, half of the queue must do: otherwise
    /// a driver with small buffers and late refills would wait for ever.
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
                // Chains put back at a pause must be consecutive, so a bad chain waits for its turn.
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

    /// Holds the driver's next chain, if it is usable for a frame.
    fn hold_one(&mut self) -> Offered {
        let mut offered = Offered::Nothing;
        self.held.push(|held| {
            let Some(taken) = self.ring.take(&mut held.chain) else { return false };
            let bytes = held.chain.writable.bytes();
            // A first buffer too short for the header could not hold the number of buffers.
            let bad = taken.fault.is_some() || bytes < u64::from(HEADER_BYTES);
            // If a chain was taken under another map than the earlier ones, it waits until they are taken
            // again.
            if bad || self.window.push(&held.chain.writable).is_err() {
                offered = Offered::Bad(taken);
                return false;
            }
            // These are never read, and the readable map changes with each image.
            held.chain.readable.clear();
            (held.taken, held.segments) = (taken, held.chain.writable.iter().count());
            self.room += bytes;
            self.segments += held.segments;
            offered = Offered::Held;
            true
        });
        offered
    }

    /// If the driver may have given back the memory of held chains, they are taken again.
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

    /// Returns the queue. Held but unused chains are available again.
    pub(super) fn into_ring(mut self) -> Ring {
        self.ring.put_back(self.held.len() as u16);
        self.ring
    }
}
