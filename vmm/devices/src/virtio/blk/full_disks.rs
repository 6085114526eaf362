//! The number of a VM's full disks: disks with writes waiting for room on the node. It is counted for
//! reports.
//!
//! ```text
//!   a write finds no room ──enter──> counted ──the write is done, or the disk is reset──> not counted
//! ```

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use nix::sys::eventfd::{EfdFlags, EventFd};

/// The count, shared by all disks of a VM.
#[derive(Clone, Debug)]
pub struct FullDisks(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    count: AtomicU32,
    changed: EventFd,
}

/// A waiting disk; counted until it is dropped.
#[derive(Debug)]
pub(super) struct FullDisk(FullDisks);

impl FullDisks {
    /// Starts without waiting disks.
    ///
    /// # Errors
    /// The process has no descriptor left.
    pub fn new() -> io::Result<FullDisks> {
        let flags = EfdFlags::EFD_NONBLOCK | EfdFlags::EFD_CLOEXEC;
        let changed = EventFd::from_value_and_flags(0, flags)?;
        Ok(FullDisks(Arc::new(Shared { count: AtomicU32::new(0), changed })))
    }

    /// Returns the number of disks waiting for room now.
    pub fn count(&self) -> u32 {
        self.0.count.load(Ordering::SeqCst)
    }

    /// Readable when the number has changed since the last read of this event.
    pub fn changed(&self) -> &EventFd {
        &self.0.changed
    }

    /// Counts one more disk.
    pub(super) fn enter(&self) -> FullDisk {
        tracing::warn!("the node has no room for what the guest writes to a disk; its writes wait");
        self.0.count.fetch_add(1, Ordering::SeqCst);
        self.publish();
        FullDisk(self.clone())
    }

    fn publish(&self) {
        // Fails only if the counter is full, and then the event is readable already.
        let _ = self.0.changed.write(1);
    }
}

impl Drop for FullDisk {
    fn drop(&mut self) {
        self.0.0.count.fetch_sub(1, Ordering::SeqCst);
        self.0.publish();
        tracing::info!("a disk of the guest waits for room on the node no more");
    }
}
