//! The region behind the device, shared with the VM: sizes, plugged blocks, and the host's pages.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use nix::sys::eventfd::EventFd;
use vm_memory::{GuestMemoryRegion as _, GuestRegionMmap};

use super::BLOCK_BYTES;
use super::blocks::{Blocks, Plugged};
use super::request::{Answer, Request};
use super::snapshot::MemSnapshot;
use crate::virtio::{DeviceError, GuestMemory, Interrupt, MemoryPartError};

/// Bytes of the configuration space (virtio 1.2, section 5.15.4).
const CONFIG_BYTES: usize = 56;

/// VIRTIO_MEM_STATE_*.
const STATE_PLUGGED: u16 = 0;
const STATE_UNPLUGGED: u16 = 1;
const STATE_MIXED: u16 = 2;

/// The VM's handle of the device.
#[derive(Clone, Debug)]
pub struct MemHandle(pub(super) Arc<Region>);

impl MemHandle {
    /// Asks the driver to have `requested` bytes plugged, within the first `usable` bytes of the region. The
    /// VM has given these to the guest. The event is written once the size is reached, or at once if it
    /// already is. More than the last request is also reached with more than that: the driver may be unable
    /// to give back what an earlier request for less has left plugged.
    pub fn request(&self, requested: u64, usable: u64) {
        let mut book = self.0.book();
        book.usable = usable.min(self.0.length).max(book.usable);
        let requested = requested.min(book.usable);
        if requested != book.requested {
            book.grows = requested > book.requested;
        }
        book.requested = requested;
        book.asked = true;
        book.notify_if_settled(&self.0.settled);
        if let Some(interrupt) = &book.interrupt {
            // The line's counter is full only if the driver has not looked yet. It will look then.
            let _ = interrupt.config_changed(&book.config(&self.0));
        }
    }

    /// Bytes plugged now.
    pub fn plugged_bytes(&self) -> u64 {
        self.0.book().blocks.plugged_bytes()
    }
}

#[derive(Debug)]
pub(super) struct Region {
    pub(super) base: u64,
    pub(super) length: u64,
    /// The mapping behind the region.
    room: Arc<GuestRegionMmap>,
    /// Contains the plugged blocks, so devices may reach them.
    memory: GuestMemory,
    settled: Arc<EventFd>,
    book: Mutex<Book>,
}

#[derive(Debug, Default)]
pub(super) struct Book {
    pub(super) usable: u64,
    pub(super) requested: u64,
    pub(super) blocks: Blocks,
    /// Set while the driver is active.
    pub(super) interrupt: Option<Arc<dyn Interrupt>>,
    /// The VM waits for the requested size. The event is written once: a guest going back and forth must not
    /// cause repeated wake-ups.
    asked: bool,
    /// The request was for more than the one before.
    grows: bool,
}

impl Book {
    /// Returns the configuration space of the device over `region`.
    pub(super) fn config(&self, region: &Region) -> [u8; CONFIG_BYTES] {
        let mut config = [0; CONFIG_BYTES];
        // The NUMA node and its padding, at 8, stay zero: the feature is not offered.
        for (offset, value) in [
            (0, BLOCK_BYTES),
            (16, region.base),
            (24, region.length),
            (32, self.usable),
            (40, self.blocks.plugged_bytes()),
            (48, self.requested),
        ] {
            config[offset..offset + 8].copy_from_slice(&value.to_le_bytes());
        }
        config
    }

    fn notify_if_settled(&mut self, settled: &EventFd) {
        let plugged = self.blocks.plugged_bytes();
        if self.asked && (plugged == self.requested || self.grows && plugged > self.requested) {
            self.asked = false;
            // Full only if it was not read yet. Then it is readable.
            let _ = settled.write(1);
        }
    }
}

impl Region {
    pub(super) fn new(room: Arc<GuestRegionMmap>, memory: GuestMemory, settled: Arc<EventFd>) -> Region {
        let (base, length) = (room.start_addr().0, room.len());
        let book = Mutex::new(Book { blocks: Blocks::new(length), ..Book::default() });
        Region { base, length, room, memory, settled, book }
    }

    pub(super) fn book(&self) -> MutexGuard<'_, Book> {
        self.book.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Carries out the driver's request, if it is allowed.
    pub(super) fn serve(&self, request: Request) -> Answer {
        let mut book = self.book();
        let answer = match request {
            Request::Plug { address, blocks } => self.plug(&mut book, address, blocks),
            Request::Unplug { address, blocks } => self.unplug(&mut book, address, blocks),
            Request::UnplugAll => self.unplug_all(&mut book),
            Request::State { address, blocks } => match self.range(&book, address, blocks) {
                Some((_, _, Plugged::All)) => Answer::State(STATE_PLUGGED),
                Some((_, _, Plugged::None)) => Answer::State(STATE_UNPLUGGED),
                Some((_, _, Plugged::Some)) => Answer::State(STATE_MIXED),
                None => Answer::Error,
            },
            Request::Unknown => Answer::Error,
        };
        book.notify_if_settled(&self.settled);
        answer
    }

    fn plug(&self, book: &mut Book, address: u64, blocks: u16) -> Answer {
        let Some((first, count, Plugged::None)) = self.range(book, address, blocks) else {
            return Answer::Error;
        };
        if book.blocks.plugged_bytes() + u64::from(blocks) * BLOCK_BYTES > book.requested {
            return Answer::Nack;
        }
        if self.set(book, first, count, true).is_err() {
            return Answer::Busy;
        }
        Answer::Ack
    }

    fn unplug(&self, book: &mut Book, address: u64, blocks: u16) -> Answer {
        let Some((first, count, Plugged::All)) = self.range(book, address, blocks) else {
            return Answer::Error;
        };
        if self.set(book, first, count, false).is_err() {
            return Answer::Busy;
        }
        // In the reverse order, a device could fill a page again after it was given back.
        if self.discard(first, count).is_err() {
            return Answer::Error;
        }
        Answer::Ack
    }

    fn unplug_all(&self, book: &mut Book) -> Answer {
        let plugged = std::mem::replace(&mut book.blocks, Blocks::new(self.length)).runs();
        // An empty list never exceeds the limit, and never overlaps.
        let _ = self.memory.set_plugged(&self.room, &[]);
        for (first, count) in plugged {
            if self.discard(first, count).is_err() {
                return Answer::Error;
            }
        }
        Answer::Ack
    }

    /// Marks blocks, and opens exactly the plugged ones to devices. If there would be too many parts, nothing
    /// changes.
    fn set(&self, book: &mut Book, first: usize, count: usize, plugged: bool) -> Result<(), MemoryPartError> {
        book.blocks.set(first, count, plugged);
        let set = self.memory.set_plugged(&self.room, &book.blocks.places());
        if set.is_err() {
            book.blocks.set(first, count, !plugged);
        }
        set
    }

    /// Returns the requested blocks, if they are whole, at least one, and usable.
    fn range(&self, book: &Book, address: u64, blocks: u16) -> Option<(usize, usize, Plugged)> {
        let offset = address.checked_sub(self.base)?;
        let end = offset.checked_add(u64::from(blocks) * BLOCK_BYTES)?;
        if blocks == 0 || !offset.is_multiple_of(BLOCK_BYTES) || end > book.usable {
            return None;
        }
        let (first, count) = (usize::try_from(offset / BLOCK_BYTES).ok()?, usize::from(blocks));
        Some((first, count, book.blocks.state(first, count)?))
    }

    /// Gives the blocks' pages back to the host. They read as zeroes from then on.
    fn discard(&self, first: usize, count: usize) -> std::io::Result<()> {
        let (start, length) = (first * BLOCK_BYTES as usize, count * BLOCK_BYTES as usize);
        if start + length > self.room.size() {
            return Err(std::io::ErrorKind::InvalidInput.into());
        }
        let address = self.room.as_ptr().wrapping_add(start);
        // SAFETY: the range is a part of the room's mapping, which lives as long as `self.room`, and private
        // anonymous memory, so nothing but its content, the guest's own, goes.
        let result = unsafe { libc::madvise(address.cast(), length, libc::MADV_DONTNEED) };
        if result == 0 { Ok(()) } else { Err(std::io::Error::last_os_error()) }
    }

    pub(super) fn save(&self) -> MemSnapshot {
        let book = self.book();
        MemSnapshot {
            base: self.base,
            length: self.length,
            usable: book.usable,
            requested: book.requested,
            plugged: book.blocks.runs(),
        }
    }

    pub(super) fn restore(&self, state: &MemSnapshot) -> Result<(), DeviceError> {
        let odd = |message: String| DeviceError { device: "mem", message };
        if (state.base, state.length) != (self.base, self.length) {
            return Err(odd(format!(
                "saved as {state:?}, and now it is at {:#x}, {}",
                self.base, self.length
            )));
        }
        let mut blocks = Blocks::new(self.length);
        for &(first, count) in &state.plugged {
            if blocks.state(first, count) != Some(Plugged::None) {
                return Err(odd(format!("{count} blocks at {first} are plugged twice, or not there")));
            }
            blocks.set(first, count, true);
        }
        let sizes = [blocks.plugged_bytes(), state.requested, state.usable, self.length];
        if state.requested > state.usable || sizes.iter().any(|size| *size > self.length) {
            return Err(odd(format!("the sizes of {state:?} do not fit each other")));
        }
        let mut book = self.book();
        let places = self.memory.set_plugged(&self.room, &blocks.places());
        places.map_err(|error| odd(error.to_string()))?;
        (book.usable, book.requested, book.blocks) = (state.usable, state.requested, blocks);
        Ok(())
    }
}
