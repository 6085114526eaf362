//! The umask of the process making a file. The host's file system applies it, unless the directory has a
//! default access control list, as it does for programs of the host.

use nix::sched::{CloneFlags, unshare};
use nix::sys::stat::{Mode, umask};

/// The calling thread's umask until this is dropped. It has none after that.
#[must_use = "the umask holds until this is dropped"]
pub(super) struct Umask(());

impl Umask {
    /// Sets the umask. Bits unknown to a umask are passed over.
    pub(super) fn of_this_thread(bits: u32) -> Umask {
        umask(Mode::from_bits_truncate(bits));
        Umask(())
    }
}

impl Drop for Umask {
    fn drop(&mut self) {
        umask(Mode::empty());
    }
}

/// Gives the calling thread a umask of its own, since threads of a process share one otherwise. The working
/// directory and the root are the thread's own from here on, too. Needs no privilege.
pub(in crate::virtio::fs) fn separate() -> nix::Result<()> {
    unshare(CloneFlags::CLONE_FS)
}
