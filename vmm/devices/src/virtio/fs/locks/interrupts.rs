//! Processes of the guest to wait for locks no longer. A driver for virtio-fs says nothing of signals: a
//! process waiting for a lock could not be killed. The host says it instead, after it has killed one.

use std::collections::BTreeSet;
use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::sync::{Mutex, PoisonError};

use vmm_sys_util::eventfd::{EFD_NONBLOCK, EventFd};

/// Most processes with waits to end. The daemon names them again until they are gone.
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

    /// Ends the waits of these processes soon. Processes beyond the bound are passed over.
    pub(in crate::virtio::fs) fn add(&self, more: &[u32]) {
        let mut pids = self.pids.lock().unwrap_or_else(PoisonError::into_inner);
        let room = PIDS_MAX.saturating_sub(pids.len());
        pids.extend(more.iter().take(room));
        // Refused only when the counter is full, and then the event is readable already.
        let _ = self.event.write(1);
    }

    /// Takes the added processes.
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
