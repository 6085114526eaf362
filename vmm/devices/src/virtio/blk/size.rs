//! The size of a block device, which an operator may enlarge while the disk is in use.
//!
//! The kernel says so by a message in the network namespace that it began with, which a jailed process does not hear.
//! So the worker looks now and then: a system call in [`INTERVAL`] for each block device of a pod, none for other disks.

use std::fs::File;
use std::io::{self, Seek as _, SeekFrom};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use super::SECTOR_BYTES;

/// Time between two looks.
pub(super) const INTERVAL: Duration = Duration::from_secs(10);

/// Whole sectors of a file or a block device.
pub(super) fn sectors(mut file: &File) -> io::Result<u64> {
    Ok(file.seek(SeekFrom::End(0))? / SECTOR_BYTES)
}

/// The size as the driver may read it.
#[derive(Debug)]
pub(super) struct Size {
    sectors: Arc<AtomicU64>,
    next_look: Instant,
}

impl Size {
    pub(super) fn new(sectors: Arc<AtomicU64>) -> Size {
        Size { sectors, next_look: Instant::now() + INTERVAL }
    }

    /// The time until the next look.
    pub(super) fn patience(&self) -> Duration {
        self.next_look.saturating_duration_since(Instant::now())
    }

    /// Looks, if it is time. Returns the new size if the device has grown. A device that has shrunk keeps its size
    /// for the driver, and what lies beyond is the host's I/O error.
    pub(super) fn look(&mut self, file: &File) -> Option<u64> {
        if !self.patience().is_zero() {
            return None;
        }
        self.next_look = Instant::now() + INTERVAL;
        let now = sectors(file).ok()?;
        (self.sectors.fetch_max(now, Ordering::AcqRel) < now).then_some(now)
    }

    /// Has the next look come at once.
    #[cfg(test)]
    pub(super) fn hurry(&mut self) {
        self.next_look = Instant::now();
    }
}
