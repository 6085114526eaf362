//! Processes of the guest that are to wait for locks no longer. A driver for virtio-fs says nothing of signals, so that
//! a process that waits for a lock is one that cannot be killed; the host says it instead, when it has killed one.

use std::collections::BTreeSet;
use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::sync::{Mutex, PoisonError};

use vmm_sys_util::eventfd::{EFD_NONBLOCK, EventFd};

/// Processes whose waits are still to be ended. The daemon names them again until they are gone.
const PIDS_MAX: usize = 1 << 16;

/// Process ids on their way to the device's threads.
#[derive(Debug)]
pub(in crate::virtio::fs) struct Interrupts {
    event: EventFd,
    pids: Mutex<BTreeSet<u32>>,
}

impl Interrupts {
    pub(in crate::virtio::fs) fn new() -> io::Result<Interrupts> {
        Ok(Interrupts { event: EventFd::new(EFD_NONBLOCK)?, pids: Mutex::default() })
    }

    /// Has the waits of these processes ended soon. Beyond the bound they are passed over.
    pub(in crate::virtio::fs) fn add(&self, more: &[u32]) {
        let mut pids = self.pids.lock().unwrap_or_else(PoisonError::into_inner);
        let room = PIDS_MAX.saturating_sub(pids.len());
        pids.extend(more.iter().take(room));
        // Refused only when the counter is full, and then the event is readable already.
        let _ = self.event.write(1);
    }

    /// Takes the processes that were added.
    pub(in crate::virtio::fs) fn take(&self) -> BTreeSet<u32> {
        let _ = self.event.read();
        std::mem::take(&mut *self.pids.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl AsRawFd for Interrupts {
    fn as_raw_fd(&self) -> RawFd {
        self.event.as_raw_fd()
    }
}
