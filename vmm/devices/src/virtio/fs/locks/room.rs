//! What the locks of all files share: their bounds, their number, and the news of a freed one.

use std::io;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// Most owners of locks in a pod, counted once for each locked file. Each costs the host a descriptor. A
/// database locks a file or a few, and a mail server one for each open mailbox.
const OWNERS_MAX: usize = 4096;

/// Most ranges of record locks in a pod. Each costs the kernel of the host some 200 bytes, not charged to any
/// cgroup. SQLite has a handful for each connection, and Samba's databases have some hundred.
const RANGES_MAX: usize = 16_384;

/// The bounds of a share's locks.
#[derive(Clone, Copy, Debug)]
pub(in crate::virtio::fs) struct Bounds {
    pub(in crate::virtio::fs) owners: usize,
    pub(in crate::virtio::fs) ranges: usize,
}

impl Default for Bounds {
    fn default() -> Bounds {
        Bounds { owners: OWNERS_MAX, ranges: RANGES_MAX }
    }
}

/// The room for locks.
#[derive(Debug)]
pub(in crate::virtio::fs) struct Room {
    bounds: Bounds,
    owners: AtomicUsize,
    ranges: AtomicUsize,
    /// A lock was released since the last question.
    freed: AtomicBool,
}

impl Room {
    /// All of the room, within these bounds.
    pub(in crate::virtio::fs) fn new(bounds: Bounds) -> Room {
        Room {
            bounds,
            owners: AtomicUsize::new(0),
            ranges: AtomicUsize::new(0),
            freed: AtomicBool::new(false),
        }
    }

    /// Takes the place of an owner. Returns ENOLCK if there is none.
    pub(super) fn take_owner(&self) -> io::Result<()> {
        take(&self.owners, 1, self.bounds.owners)
    }

    /// Takes the places of ranges. Returns ENOLCK if there are not as many.
    pub(super) fn take_ranges(&self, count: usize) -> io::Result<()> {
        take(&self.ranges, count, self.bounds.ranges)
    }

    pub(super) fn give_owners(&self, count: usize) {
        self.owners.fetch_sub(count, Ordering::SeqCst);
    }

    pub(super) fn give_ranges(&self, count: usize) {
        self.ranges.fetch_sub(count, Ordering::SeqCst);
    }

    /// Notes the release of a lock, whole or in part.
    pub(in crate::virtio::fs) fn note_freed(&self) {
        self.freed.store(true, Ordering::SeqCst);
    }

    /// Returns true if a lock was released since the last call.
    pub(in crate::virtio::fs) fn take_freed(&self) -> bool {
        self.freed.swap(false, Ordering::SeqCst)
    }

    #[cfg(test)]
    pub(super) fn taken(&self) -> (usize, usize) {
        (self.owners.load(Ordering::SeqCst), self.ranges.load(Ordering::SeqCst))
    }
}

fn take(counter: &AtomicUsize, count: usize, bound: usize) -> io::Result<()> {
    let more = |taken: usize| taken.checked_add(count).filter(|taken| count == 0 || *taken <= bound);
    match counter.fetch_update(Ordering::SeqCst, Ordering::SeqCst, more) {
        Ok(_) => Ok(()),
        // As fcntl(2) has it: "too many segment locks open".
        Err(_) => Err(io::Error::from_raw_os_error(libc::ENOLCK)),
    }
}
