//! Connections that the guest opened to the host, on their way from the vsock thread to the client.
//! Bounded: beyond it, and while nobody is there to take them, the guest's connections are refused.

use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

use nix::sys::eventfd::{EfdFlags, EventFd};
use vmm_vm::GuestStream;

/// Streams that may wait for the control thread: as many as the vsock device lets a guest have at once.
const WAITING_MAX: usize = 72;

pub(super) struct GuestStreams {
    sender: SyncSender<(u32, UnixStream)>,
    receiver: Receiver<(u32, UnixStream)>,
    ready: Arc<EventFd>,
    open: Arc<AtomicBool>,
}

impl GuestStreams {
    pub(super) fn new() -> nix::Result<GuestStreams> {
        let (sender, receiver) = sync_channel(WAITING_MAX);
        let ready = Arc::new(EventFd::from_flags(EfdFlags::EFD_NONBLOCK | EfdFlags::EFD_CLOEXEC)?);
        Ok(GuestStreams { sender, receiver, ready, open: Arc::default() })
    }

    /// Lets streams wait: a client is there to take them.
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

    /// Returns the next stream that waits.
    pub(super) fn next(&self) -> Option<(u32, UnixStream)> {
        // Before the look: a stream that comes after it writes the event again. An event that was not
        // written cannot be read, and need not be.
        let _ = self.ready.read();
        self.receiver.try_recv().ok()
    }

    /// Returns the function by which the vsock device hands streams over.
    pub(super) fn sink(&self) -> GuestStream {
        let (sender, ready, open) = (self.sender.clone(), Arc::clone(&self.ready), Arc::clone(&self.open));
        Arc::new(move |port, stream| {
            open.load(Ordering::Acquire) && sender.try_send((port, stream)).is_ok() && ready.write(1).is_ok()
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn streams_are_refused_while_nobody_takes_them() {
        let streams = GuestStreams::new().unwrap();
        let sink = streams.sink();
        assert!(!sink(1026, UnixStream::pair().unwrap().0));
        streams.open();
        assert!(sink(1026, UnixStream::pair().unwrap().0));
        assert_eq!(streams.next().map(|(port, _)| port), Some(1026));
        streams.close();
        assert!(!sink(1026, UnixStream::pair().unwrap().0));
        assert!(streams.next().is_none());
    }

    #[test]
    fn no_more_than_the_bound_wait() {
        let streams = GuestStreams::new().unwrap();
        let sink = streams.sink();
        streams.open();
        let taken = (0..WAITING_MAX + 5).filter(|_| sink(1, UnixStream::pair().unwrap().0)).count();
        assert_eq!(taken, WAITING_MAX);
    }
}
