//! File locks of the guest's programs, held on the host to keep out programs of other pods and of the host
//! too. They are record locks (fcntl(2)) and locks of flock(2).
//!
//! A lock of the host belongs to an open description. A lock of the guest belongs to an owner: a process,
//! or an open file of its own. The guest's kernel names owners by a number. So each owner with locks on a
//! file has a description of it here, and the host's kernel decides between owners of all pods. Record
//! locks are those of open descriptions (F_OFD_SETLK), because all owners are one process to the host. The
//! host finds no deadlocks among such locks.
//!
//! ```text
//!   nothing ──a lock──► held ──all unlocked, FLUSH by the owner, RELEASE of the file──► nothing
//!                        │ ▲
//!                        └─┘ more locks, some unlocked
//! ```
//!
//! `files` has the files with locks, `table` the owners of one file's, `room` their bounds, `ranges` the
//! ranges of each, `waits` the requests waiting for a lock, and `interrupts` the processes to wait no longer.
//! `share::lock` takes and frees. The owners are in the share. The requests are in the VMM, and it tries them
//! again.

mod files;
mod interrupts;
mod ranges;
mod room;
mod table;
mod waits;

pub(super) use files::LockedFiles;
pub(super) use interrupts::Interrupts;
pub(super) use ranges::Ranges;
pub(super) use room::Bounds;
pub(super) use table::{Held, Holder, Locks, Scheme};
pub(super) use waits::{Wait, Waiting};

use std::io;

use fuse_backend_rs::abi::fuse_abi::{InHeader, LkIn};
use fuse_backend_rs::api::filesystem::{Context, FileLock};
use vm_memory::ByteValued as _;

/// The flag of a request from flock(2) (linux/fuse.h, FUSE_LK_FLOCK).
const FLOCK: u32 = 1;

/// A driver's request for a lock.
#[derive(Clone, Copy)]
pub(super) struct LockRequest {
    pub(super) context: Context,
    pub(super) inode: u64,
    /// The owner's open file in this request.
    pub(super) handle: u64,
    pub(super) owner: u64,
    pub(super) lock: FileLock,
    pub(super) flags: u32,
}

/// Bytes of a request for a lock.
pub(super) const LOCK_BYTES: usize = size_of::<InHeader>() + size_of::<LkIn>();

/// Returns true if an error says "another holds the lock".
pub(super) fn is_held(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EAGAIN | libc::EACCES))
}

impl LockRequest {
    /// Reads a FUSE request for a lock (`fuse_in_header` and `fuse_lk_in` in linux/fuse.h). Returns `None`
    /// if it is too short.
    pub(super) fn read(message: &[u8]) -> Option<LockRequest> {
        let (mut header, mut request) = (InHeader::default(), LkIn::default());
        let (first, rest) = message.split_at_checked(size_of::<InHeader>())?;
        header.as_mut_slice().copy_from_slice(first);
        request.as_mut_slice().copy_from_slice(rest.get(..size_of::<LkIn>())?);
        let LkIn { fh, owner, lk, lk_flags, .. } = request;
        let context = Context { uid: header.uid, gid: header.gid, pid: header.pid.cast_signed() };
        Some(LockRequest {
            context,
            inode: header.nodeid,
            handle: fh,
            owner,
            lock: lk.into(),
            flags: lk_flags,
        })
    }

    pub(super) fn scheme(&self) -> Scheme {
        if self.flags & FLOCK != 0 { Scheme::Flock } else { Scheme::Records }
    }

    pub(super) fn holder(&self) -> Holder {
        Holder { inode: self.inode, owner: self.owner, scheme: self.scheme() }
    }
}
