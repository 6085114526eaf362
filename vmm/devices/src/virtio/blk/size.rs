//! The size of a block device. An operator may enlarge the device while the disk is in use.
//!
//! The kernel reports this in the initial network namespace, and a jailed process cannot receive it. So the
//! worker checks the size from time to time: one system call each [`INTERVAL`] for each block device of a
//! pod, none for other disks.

use std::fs::File;
use std::io::{self, Seek as _, SeekFrom};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use super::SECTOR_BYTES;

/// Time between two checks.
pub(super) const INTERVAL: Duration = Duration::from_secs(10);

/// Returns the whole sectors of a file or a block device.
pub(super) fn sectors(mut file: &File) -> io::Result<u64> {
    Ok(file.seek(SeekFrom::End(0))? / SECTOR_BYTES)
}

/// The size visible to the driver.
#[derive(Debug)]
pub(super) struct Size {
    sectors: Arc<AtomicU64>,
    next_look: Instant,
}

impl Size {
    pub(super) fn new(sectors: Arc<AtomicU64>) -> Size {
        Size { sectors, next_look: Instant::now() + INTERVAL }
    }

    /// Returns the time until the next check.
    pub(super) fn patience(&self) -> Duration {
        self.next_look.saturating_duration_since(Instant::now())
    }

    /// Checks the size, if it is time. Returns the new size if the device has grown. A shrunk device keeps
    /// its size for the driver, and accesses beyond the new end get the host's I/O error.
    pub(super) fn look(&mut self, file: &File) -> Option<u64> {
        if !self.patience().is_zero() {
            return None;
        }
        self.next_look = Instant::now() + INTERVAL;
        let now = sectors(file).ok()?;
        (self.sectors.fetch_max(now, Ordering::AcqRel) < now).then_some(now)
    }

    /// Makes the next check due at once.
    #[cfg(test)]
    pub(super) fn hurry(&mut self) {
        self.next_look = Instant::now();
    }
}
