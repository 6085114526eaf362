//! Locks: takes and frees them in the name of an owner. Nothing here waits.

use std::io;

use fuse_backend_rs::api::filesystem::{FileLock, FileSystem as _};
use nix::errno::Errno;
use nix::fcntl::{FcntlArg, fcntl};
use rustix::fs::{FlockOperation, flock};

use super::Share;
use crate::virtio::fs::locks::{Held, Holder, LockRequest, Locks, Ranges, Scheme, is_held};

/// The last byte of a range without an end (linux/fs.h, OFFSET_MAX).
const END: u64 = i64::MAX as u64;

const READ: u32 = libc::F_RDLCK as u32;
const WRITE: u32 = libc::F_WRLCK as u32;
const UNLOCK: u32 = libc::F_UNLCK as u32;

impl Share {
    /// Takes or frees a lock. Returns EAGAIN if another owner holds it. An owner keeps its description then
    /// for the next attempt, if it `waits`.
    pub(in crate::virtio::fs) fn lock(&self, request: &LockRequest, waits: bool) -> io::Result<()> {
        // There has to be an open file, because the lock ends with it.
        self.files.getattr(&request.context, request.inode, Some(request.handle))?;
        self.locks.with(request.inode, |locks| self.lock_in(locks, request, waits))
    }

    fn lock_in(&self, locks: &mut Locks, request: &LockRequest, waits: bool) -> io::Result<()> {
        let holder = request.holder();
        let wanted = request.lock.lock_type;
        let range = range(&request.lock)?;
        let whole = holder.scheme == Scheme::Flock || (request.lock.start, request.lock.end) == (0, END);
        if wanted == UNLOCK && whole {
            locks.remove(&holder);
            return Ok(());
        }
        let known = locks.get_mut(&holder).is_some();
        if !known {
            if wanted == UNLOCK {
                return Ok(());
            }
            let held = self.description(request)?;
            locks.insert(holder, held)?;
        }
        let attempt = match holder.scheme {
            Scheme::Records => lock_records(locks, request, range),
            Scheme::Flock => self.lock_whole(locks, request),
        };
        match &attempt {
            Ok(()) => {
                // Less may be locked than before, or by fewer.
                if known && wanted != WRITE {
                    locks.note_freed();
                }
                if let Some(held) = locks.get_mut(&holder).filter(|_| request.lock.pid != 0) {
                    held.pid = request.lock.pid;
                }
            }
            Err(error) if !(known || waits && is_held(error)) => locks.remove(&holder),
            Err(_) => {}
        }
        attempt
    }

    /// Looks for a lock in the way of the owner's. A lock of the pod's own has its process. A lock of
    /// another pod or of the host has process 0.
    pub(in crate::virtio::fs) fn find_lock(&self, request: &LockRequest) -> io::Result<FileLock> {
        self.files.getattr(&request.context, request.inode, Some(request.handle))?;
        self.locks.with(request.inode, |locks| self.find_lock_in(locks, request))
    }

    fn find_lock_in(&self, locks: &mut Locks, request: &LockRequest) -> io::Result<FileLock> {
        let mut range = range(&request.lock)?;
        match locks.get_mut(&request.holder()) {
            Some(held) => fcntl(&held.file, FcntlArg::F_OFD_GETLK(&mut range))?,
            None => {
                let file = self.reopen(&request.context, request.inode, false)?;
                fcntl(&file, FcntlArg::F_OFD_GETLK(&mut range))?
            }
        };
        if u32::try_from(range.l_type) == Ok(UNLOCK) {
            return Ok(FileLock { lock_type: UNLOCK, pid: 0, ..request.lock });
        }
        let start = u64::try_from(range.l_start).unwrap_or(0);
        let end = match u64::try_from(range.l_len) {
            Ok(length @ 1..) => start.saturating_add(length - 1).min(END),
            _ => END,
        };
        let lock_type = u32::try_from(range.l_type).unwrap_or(WRITE);
        Ok(FileLock { start, end, lock_type, pid: process_of(locks, request, range) })
    }

    /// Releases the record locks of an owner on a file when it closes it, even locks by another open file
    /// (fcntl(2)).
    pub(super) fn close_owner(&self, inode: u64, owner: u64) {
        let holder = Holder { inode, owner, scheme: Scheme::Records };
        self.locks.with_locked(inode, |locks| locks.remove(&holder));
    }

    /// Releases the locks of an ended open file.
    pub(super) fn close_handle(&self, inode: u64, handle: u64, flock_owner: Option<u64>) {
        self.locks.with_locked(inode, |locks| {
            locks.remove_handle(inode, handle);
            if let Some(owner) = flock_owner {
                locks.remove(&Holder { inode, owner, scheme: Scheme::Flock });
            }
        });
    }

    /// Returns true if a lock was released since the last call.
    pub(in crate::virtio::fs) fn lock_was_freed(&self) -> bool {
        self.locks.take_freed()
    }

    /// Opens a description for an owner's locks. Record locks need a writable one as soon as one of them is
    /// exclusive, and cannot be moved to another then. The first is therefore opened for both if the host
    /// allows. A lock of flock(2) needs neither, and a file open for writing cannot be executed.
    fn description(&self, request: &LockRequest) -> io::Result<Held> {
        let open = |writable| self.reopen(&request.context, request.inode, writable);
        let read_only = || open(false).map(|file| (file, false));
        let (file, writable) = match request.scheme() {
            Scheme::Flock => read_only()?,
            Scheme::Records => match open(true) {
                Ok(file) => (file, true),
                Err(error) if error.raw_os_error() == Some(libc::ENFILE) => return Err(error),
                Err(_) => read_only()?,
            },
        };
        let ranges = Ranges::default();
        Ok(Held { file, handle: request.handle, pid: request.lock.pid, writable, ranges })
    }

    /// Locks a whole file. A network file system makes a record lock of it, and wants a writable
    /// description for an exclusive one.
    fn lock_whole(&self, locks: &mut Locks, request: &LockRequest) -> io::Result<()> {
        let holder = request.holder();
        let held = locks.get_mut(&holder).ok_or_else(|| io::Error::from_raw_os_error(libc::ENOLCK))?;
        let operation = match request.lock.lock_type {
            READ => FlockOperation::NonBlockingLockShared,
            _ => FlockOperation::NonBlockingLockExclusive,
        };
        match flock(&held.file, operation) {
            Err(rustix::io::Errno::BADF) if !held.writable => {
                let file = self.reopen(&request.context, request.inode, true)?;
                let (handle, pid) = (held.handle, held.pid);
                let held = Held { file, writable: true, handle, pid, ranges: Ranges::default() };
                Ok(flock(&locks.insert(holder, held)?.file, operation)?)
            }
            other => Ok(other?),
        }
    }
}

fn lock_records(locks: &mut Locks, request: &LockRequest, range: libc::flock) -> io::Result<()> {
    let FileLock { start, end, lock_type, .. } = request.lock;
    let exclusive = (lock_type != UNLOCK).then_some(lock_type == WRITE);
    locks.change(&request.holder(), (start, end, exclusive), |file| {
        match fcntl(file, FcntlArg::F_OFD_SETLK(&range)) {
            Ok(_) => Ok(()),
            Err(Errno::EACCES) => Err(Errno::EAGAIN.into()),
            Err(error) => Err(error.into()),
        }
    })
}

/// Returns the process in this guest with a lock in the way, or 0. Tested from its holder's own
/// description, an exclusive lock meets nothing there. Several readers of the same bytes hide each other.
fn process_of(locks: &Locks, request: &LockRequest, found: libc::flock) -> u32 {
    let holds = |held: &Held| {
        let mut probe = libc::flock { l_type: libc::F_WRLCK as libc::c_short, l_pid: 0, ..found };
        let asked = fcntl(&held.file, FcntlArg::F_OFD_GETLK(&mut probe));
        asked.is_ok() && libc::c_int::from(probe.l_type) == libc::F_UNLCK
    };
    let others = locks.of_records(request.inode).filter(|(holder, _)| holder.owner != request.owner);
    others.map(|(_, held)| held).find(|held| holds(held)).map_or(0, |held| held.pid)
}

/// The range in the form of the host's kernel.
fn range(lock: &FileLock) -> io::Result<libc::flock> {
    let invalid = || io::Error::from_raw_os_error(libc::EINVAL);
    if ![READ, WRITE, UNLOCK].contains(&lock.lock_type) || lock.start > lock.end || lock.end > END {
        return Err(invalid());
    }
    // To the end of the file, even after it grows.
    let length = if lock.end == END { 0 } else { lock.end - lock.start + 1 };
    Ok(libc::flock {
        l_type: libc::c_short::try_from(lock.lock_type).map_err(|_| invalid())?,
        l_whence: libc::SEEK_SET as libc::c_short,
        l_start: i64::try_from(lock.start).map_err(|_| invalid())?,
        l_len: i64::try_from(length).map_err(|_| invalid())?,
        l_pid: 0,
    })
}
