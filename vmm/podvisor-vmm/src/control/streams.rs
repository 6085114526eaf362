//! Ports and numbers of the guest's streams to the host, on their way from the vsock thread to the client.
//! Their number is bounded. The guest's streams are refused beyond the bound, and while no client accepts
//! streams by number.

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

use nix::sys::eventfd::{EfdFlags, EventFd};
use vmm_vm::GuestStream;

/// Most streams waiting for the control thread: the most that the vsock device lets a guest have at once.
const WAITING_MAX: usize = 72;

pub(super) struct GuestStreams {
    sender: SyncSender<(u32, u64)>,
    receiver: Receiver<(u32, u64)>,
    ready: Arc<EventFd>,
    open: Arc<AtomicBool>,
}

impl GuestStreams {
    pub(super) fn new() -> nix::Result<GuestStreams> {
        let (sender, receiver) = sync_channel(WAITING_MAX);
        let ready = Arc::new(EventFd::from_flags(EfdFlags::EFD_NONBLOCK | EfdFlags::EFD_CLOEXEC)?);
        Ok(GuestStreams { sender, receiver, ready, open: Arc::default() })
    }

    /// Lets streams wait: a client is there to accept them.
    pub(super) fn open(&self) {
        self.open.store(true, Ordering::Release);
    }

    /// Refuses streams: no client is there.
    pub(super) fn close(&self) {
        self.open.store(false, Ordering::Release);
    }

    /// Readable when a stream waits.
    pub(super) fn ready(&self) -> BorrowedFd<'_> {
        self.ready.as_fd()
    }

    /// Returns the next waiting stream.
    pub(super) fn next(&self) -> Option<(u32, u64)> {
        // Read first: a stream coming after the look writes the event again. An event not written cannot be
        // read, and need not be.
        let _ = self.ready.read();
        self.receiver.try_recv().ok()
    }

    /// Returns the vsock device's function for announcing streams.
    pub(super) fn sink(&self) -> GuestStream {
        let (sender, ready, open) = (self.sender.clone(), Arc::clone(&self.ready), Arc::clone(&self.open));
        Arc::new(move |port, number| {
            open.load(Ordering::Acquire) && sender.try_send((port, number)).is_ok() && ready.write(1).is_ok()
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn streams_are_refused_while_nobody_accepts_them() {
        let streams = GuestStreams::new().unwrap();
        let sink = streams.sink();
        assert!(!sink(1026, 16));
        streams.open();
        assert!(sink(1026, 16));
        assert_eq!(streams.next(), Some((1026, 16)));
        streams.close();
        assert!(!sink(1026, 16));
        assert!(streams.next().is_none());
    }

    #[test]
    fn no_more_than_the_bound_wait() {
        let streams = GuestStreams::new().unwrap();
        let sink = streams.sink();
        streams.open();
        let taken = (0..WAITING_MAX as u64 + 5).filter(|number| sink(1, *number)).count();
        assert_eq!(taken, WAITING_MAX);
    }
}
