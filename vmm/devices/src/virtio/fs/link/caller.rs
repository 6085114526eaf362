//! The VMM's end: the state shared by all threads of the device, and the known state of the share.

use std::io::{self, IoSlice, IoSliceMut};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::eventfd::{EfdFlags, EventFd};
use rustix::net::RecvFlags;

use super::packet::GROUPS_MAX;
use super::server::{ShareServer, WORDS_BYTES_MAX};
use super::socket::{Received, connected, receive, write};
use crate::virtio::fs::locks::{Interrupts, Waiting};
use crate::virtio::fs::opened::OpenedFiles;

/// A share in another process, for one device at a time.
#[derive(Clone)]
pub struct ShareLink(Arc<Common>);

struct Common {
    control: OwnedFd,
    groups: Mutex<Arc<[u32]>>,
    /// Goes up with each list of groups. 0 means the share was given none.
    groups_version: AtomicU64,
    interrupts: Interrupts,
    waiting: Waiting,
    mounted: AtomicBool,
    opened: OpenedFiles,
    /// Readable once the share is lost.
    lost: EventFd,
    reason: Mutex<Option<String>>,
}

impl std::fmt::Debug for ShareLink {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ShareLink").field("mounted", &self.mounted()).finish_non_exhaustive()
    }
}

impl ShareLink {
    /// Both ends of a link. The VMM keeps the first, and the share's process makes its [`ShareServer`] of
    /// the second.
    ///
    /// # Errors
    /// The process has no descriptor left.
    pub fn pair() -> io::Result<(ShareLink, OwnedFd)> {
        let (control, theirs) = connected()?;
        let link = ShareLink(Arc::new(Common {
            control,
            groups: Mutex::new(Arc::new([])),
            groups_version: AtomicU64::new(0),
            interrupts: Interrupts::new()?,
            waiting: Waiting::new()?,
            mounted: AtomicBool::new(false),
            opened: OpenedFiles::default(),
            lost: EventFd::from_value_and_flags(0, EfdFlags::EFD_NONBLOCK | EfdFlags::EFD_CLOEXEC)?,
            reason: Mutex::default(),
        }));
        Ok((link, theirs))
    }

    /// Waits until the share serves, for so many milliseconds at most.
    ///
    /// # Errors
    /// The share has said why it cannot, has ended, or is not ready in time.
    pub fn wait_until_ready(&self, patience_ms: u16) -> io::Result<()> {
        let mut socket = [PollFd::new(self.0.control.as_fd(), PollFlags::POLLIN)];
        loop {
            match poll(&mut socket, PollTimeout::from(patience_ms)) {
                Ok(0) => return Err(io::ErrorKind::TimedOut.into()),
                Ok(_) => break,
                Err(nix::Error::EINTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
        match self.words() {
            Some(words) if words == ShareServer::READY => Ok(()),
            Some(words) => Err(io::Error::other(words)),
            None => Err(io::Error::other("its process has ended")),
        }
    }

    /// Readable once the share is lost. Its process may have ended, or have given an answer without sense.
    #[must_use]
    pub fn lost(&self) -> BorrowedFd<'_> {
        self.0.lost.as_fd()
    }

    /// The reason for the loss of the share: its own last words, if it has left any.
    #[must_use]
    pub fn reason(&self) -> String {
        let known = self.0.reason.lock().unwrap_or_else(PoisonError::into_inner).clone();
        self.words().or(known).unwrap_or_else(|| "its process has ended".to_owned())
    }

    /// Ends the waits for locks of these processes, by the guest's numbers: they get EINTR. Each process
    /// must have a pending fatal signal, for a guest's kernel takes the answer for one. The call does not
    /// wait. A request taken at the same time may be missed: the caller names a process again as long as it
    /// is there.
    pub fn interrupt_lock_waits(&self, pids: &[u32]) {
        self.0.interrupts.add(pids);
    }

    /// Gives later requests these supplementary groups on files of the host, and no others: the first 256.
    /// The call does not wait.
    pub fn set_groups(&self, groups: &[u32]) {
        let mut list = self.groups_list();
        *list = groups.iter().copied().take(GROUPS_MAX).collect();
        self.0.groups_version.fetch_add(1, Ordering::Release);
    }

    /// The version of the list of groups.
    pub(super) fn groups_version(&self) -> u64 {
        self.0.groups_version.load(Ordering::Acquire)
    }

    /// The list of groups, and its version.
    pub(super) fn groups(&self) -> (Arc<[u32]>, u64) {
        let list = self.groups_list();
        (list.clone(), self.groups_version())
    }

    fn groups_list(&self) -> MutexGuard<'_, Arc<[u32]>> {
        self.0.groups.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Has the share open a channel, and returns this end of it. Which of two threads gets which one does not
    /// matter.
    pub(super) fn open_channel(&self) -> io::Result<OwnedFd> {
        write(self.0.control.as_fd(), &[IoSlice::new(&[0])])?;
        let mut words = [0; WORDS_BYTES_MAX];
        let mut parts = [IoSliceMut::new(&mut words)];
        let received = receive(self.0.control.as_fd(), &mut parts, true, RecvFlags::empty())?;
        match received {
            None => Err(io::Error::other("its process has ended")),
            Some(Received { bytes, file }) if words[..bytes] == ShareServer::CHANNEL => {
                file.ok_or_else(|| io::Error::other("it has no room for one"))
            }
            Some(Received { bytes, .. }) => Err(io::Error::other(text(&words[..bytes]))),
        }
    }

    /// Marks the share as lost, for this reason unless it has one already.
    pub(super) fn lose(&self, reason: &str) {
        self.0.reason.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert_with(|| reason.to_owned());
        // Refused only when the counter is full, and then the event is readable already.
        let _ = self.0.lost.write(1);
    }

    /// Returns true if the driver has it mounted.
    pub(in crate::virtio::fs) fn mounted(&self) -> bool {
        self.0.mounted.load(Ordering::SeqCst)
    }

    /// Notes a mount by the driver. An earlier mount ends with it.
    pub(in crate::virtio::fs) fn note_mounted(&self) {
        self.0.opened.clear();
        self.0.mounted.store(true, Ordering::SeqCst);
    }

    /// Notes an unmount: the driver holds nothing any more.
    pub(in crate::virtio::fs) fn note_unmounted(&self) {
        self.0.opened.clear();
        self.0.mounted.store(false, Ordering::SeqCst);
    }

    pub(in crate::virtio::fs) fn interrupts(&self) -> &Interrupts {
        &self.0.interrupts
    }

    pub(in crate::virtio::fs) fn waiting(&self) -> &Waiting {
        &self.0.waiting
    }

    pub(in crate::virtio::fs) fn opened(&self) -> &OpenedFiles {
        &self.0.opened
    }

    /// The share's words, one line for a person. `None` if it has said nothing.
    fn words(&self) -> Option<String> {
        let mut words = [0; WORDS_BYTES_MAX];
        loop {
            let mut parts = [IoSliceMut::new(&mut words)];
            let received = receive(self.0.control.as_fd(), &mut parts, false, RecvFlags::DONTWAIT).ok()??;
            // A channel may be there that nobody waits for any more.
            if words[..received.bytes] != ShareServer::CHANNEL {
                return Some(text(&words[..received.bytes]));
            }
        }
    }
}

fn text(words: &[u8]) -> String {
    String::from_utf8_lossy(words).replace(char::is_control, " ")
}
