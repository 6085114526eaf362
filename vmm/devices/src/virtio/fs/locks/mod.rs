//! File locks of the guest's programs, held on the host, so that programs of other pods and of the host are kept out
//! too: record locks (fcntl(2)) and those of flock(2).
//!
//! A lock of the host belongs to an open description, and one of the guest to an owner, which the guest's kernel names
//! by a number: a process, or an open file of its own. So each owner that locks a file has a description of that file
//! here, and the host's kernel decides between owners, of whatever pod. Record locks are those of open descriptions
//! (F_OFD_SETLK), because all owners are one process to the host. The host finds no deadlocks among such locks.
//!
//! ```text
//!   nothing ──a lock──► held ──all unlocked, FLUSH by the owner, RELEASE of the file──► nothing
//!                        │ ▲
//!                        └─┘ more locks, some unlocked
//! ```
//!
//! `table` has the owners, `waits` the requests that wait for a lock of another, `interrupts` those that are to wait no
//! longer. `share::lock` takes and frees.

mod interrupts;
mod table;
mod waits;

pub(super) use interrupts::Interrupts;
pub(super) use table::{Held, Holder, Locks, OWNERS_MAX, Scheme};
pub(super) use waits::{Wait, Waiting};

use fuse_backend_rs::api::filesystem::{Context, FileLock};

/// The flag of a request that comes from flock(2) (linux/fuse.h, FUSE_LK_FLOCK).
const FLOCK: u32 = 1;

/// A driver's request for a lock.
#[derive(Clone, Copy)]
pub(super) struct LockRequest {
    pub(super) context: Context,
    pub(super) inode: u64,
    /// The open file by which the owner asks.
    pub(super) handle: u64,
    pub(super) owner: u64,
    pub(super) lock: FileLock,
    pub(super) flags: u32,
}

impl LockRequest {
    pub(super) fn scheme(&self) -> Scheme {
        if self.flags & FLOCK != 0 { Scheme::Flock } else { Scheme::Records }
    }

    pub(super) fn holder(&self) -> Holder {
        Holder { inode: self.inode, owner: self.owner, scheme: self.scheme() }
    }
}
