//! Files opened by the share for the driver and handed over. The VMM reads and writes them itself, between
//! the page cache and the guest's memory. Each is a regular file, with a description of the VMM's alone.
//! Directories stay with the share, since a way may lead further from one of them.

use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustix::fs::{AtFlags, FileType, OFlags, StatxFlags, fcntl_setfl, fstat, statx};

/// Most files held by the VMM for a guest. The share reads and writes files opened beyond.
pub const OPENED_MAX: usize = 16_384;

/// Flags of an open file that a program may change (fcntl(2), F_SETFL). Each request repeats them.
///
/// O_APPEND is not among them: each write says for itself if it goes to the end. On the description, another
/// thread's write of a place would go there, too.
const CHANGEABLE: OFlags = OFlags::DIRECT.union(OFlags::NONBLOCK);

/// O_DSYNC. The constant of rustix is O_SYNC.
const DSYNC: OFlags = OFlags::from_bits_retain(libc::O_DSYNC as u32);

/// Permission bits taken away by a write of a process without CAP_FSETID.
const SET_ID: u32 = libc::S_ISUID | libc::S_ISGID;

/// An open file of the driver's.
#[derive(Debug)]
pub(super) struct Opened {
    file: File,
    inode: u64,
    /// As it was opened.
    flags: OFlags,
    /// The present flags of [`CHANGEABLE`].
    changed: AtomicU32,
}

/// All open files, by the driver's numbers.
#[derive(Debug, Default)]
pub(in crate::virtio::fs) struct OpenedFiles {
    files: Mutex<HashMap<u64, Arc<Opened>>>,
    /// A program has asked for a lock since the driver mounted the share: closing a file may free one.
    locks_used: AtomicBool,
}

impl Opened {
    /// A file that came with the answer to an open of `inode` with these flags. Returns `None` if it is not
    /// a regular file.
    pub(super) fn new(file: OwnedFd, inode: u64, flags: u32) -> Option<Opened> {
        let found = fstat(&file).ok()?;
        if FileType::from_raw_mode(found.st_mode) != FileType::RegularFile {
            return None;
        }
        let flags = OFlags::from_bits_retain(flags);
        let changed = AtomicU32::new((flags & CHANGEABLE).bits());
        Some(Opened { file: file.into(), inode, flags, changed })
    }

    pub(super) fn file(&self) -> &File {
        &self.file
    }

    pub(super) fn may_be_read(&self) -> bool {
        self.flags & OFlags::ACCMODE != OFlags::WRONLY
    }

    pub(super) fn may_be_written(&self) -> bool {
        self.flags & OFlags::ACCMODE != OFlags::RDONLY
    }

    /// Flags of pwritev2(2) for a write with these flags. They put it on the disk before it is answered, if
    /// the file was opened for that or the write itself asks for it, and put it at the end of the file.
    pub(super) fn write_flags(&self, asked: u32) -> i32 {
        let asked = OFlags::from_bits_retain(asked);
        let synced = asked | self.flags;
        let sync = if synced.contains(OFlags::SYNC) {
            libc::RWF_SYNC
        } else if synced.contains(DSYNC) {
            libc::RWF_DSYNC
        } else {
            0
        };
        if asked.contains(OFlags::APPEND) { sync | libc::RWF_APPEND } else { sync }
    }

    /// Applies changes by the program, as a request repeats them.
    pub(super) fn follow(&self, flags: u32) -> io::Result<()> {
        let wanted = OFlags::from_bits_retain(flags) & CHANGEABLE;
        if wanted.bits() != self.changed.load(Ordering::Relaxed) {
            fcntl_setfl(&self.file, wanted | (self.flags & OFlags::NOATIME))?;
            self.changed.store(wanted.bits(), Ordering::Relaxed);
        }
        Ok(())
    }

    /// Returns true if a write by the VMM would take away permission bits. It has no capability to keep
    /// them.
    pub(super) fn has_set_id(&self) -> io::Result<bool> {
        let flags = AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC;
        let found = statx(self.file.as_fd(), c"", flags, StatxFlags::MODE)?;
        Ok(u32::from(found.stx_mode) & SET_ID != 0)
    }
}

impl OpenedFiles {
    /// Returns true if one more may be added. Threads asking at once may all add theirs.
    pub(super) fn has_room(&self) -> bool {
        self.files().len() < OPENED_MAX
    }

    pub(super) fn add(&self, handle: u64, opened: Opened) {
        self.files().insert(handle, Arc::new(opened));
    }

    /// Returns the driver's file with this number, if it is an opening of this inode.
    pub(super) fn find(&self, handle: u64, inode: u64) -> Option<Arc<Opened>> {
        self.files().get(&handle).filter(|opened| opened.inode == inode).cloned()
    }

    /// Closes a file released by the driver. Returns true if it was held here.
    pub(super) fn remove(&self, handle: u64, inode: u64) -> bool {
        let mut files = self.files();
        let removed = files.get(&handle).is_some_and(|opened| opened.inode == inode);
        let closed = if removed { files.remove(&handle) } else { None };
        // A file of another node may take time to close.
        drop(files);
        closed.is_some()
    }

    pub(super) fn clear(&self) {
        let closed = std::mem::take(&mut *self.files());
        self.locks_used.store(false, Ordering::SeqCst);
        drop(closed);
    }

    pub(super) fn note_lock(&self) {
        self.locks_used.store(true, Ordering::SeqCst);
    }

    pub(super) fn locks_used(&self) -> bool {
        self.locks_used.load(Ordering::SeqCst)
    }

    fn files(&self) -> MutexGuard<'_, HashMap<u64, Arc<Opened>>> {
        self.files.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_regular_files_are_taken() {
        let dir = tempfile::tempdir().unwrap();
        let directory = File::open(dir.path()).unwrap();
        let (pipe, _other) = std::io::pipe().unwrap();
        for other in [OwnedFd::from(directory), pipe.into()] {
            assert!(Opened::new(other, 1, 0).is_none());
        }
        assert!(Opened::new(tempfile::tempfile().unwrap().into(), 1, 0).is_some());
    }

    #[test]
    fn a_write_is_synced_and_appended_as_it_asks_itself() {
        let opened = |flags| Opened::new(tempfile::tempfile().unwrap().into(), 1, flags as u32).unwrap();
        for (opened_with, asked, flags) in [
            (libc::O_RDWR, libc::O_RDWR, 0),
            (libc::O_RDWR, libc::O_DSYNC, libc::RWF_DSYNC),
            (libc::O_RDWR, libc::O_SYNC, libc::RWF_SYNC),
            (libc::O_SYNC, 0, libc::RWF_SYNC),
            (libc::O_APPEND, libc::O_APPEND, libc::RWF_APPEND),
            // The write-back of a mapped page names no flags.
            (libc::O_APPEND, 0, 0),
            (libc::O_DSYNC, libc::O_APPEND, libc::RWF_DSYNC | libc::RWF_APPEND),
        ] {
            assert_eq!(opened(opened_with).write_flags(asked as u32), flags, "{opened_with:o} {asked:o}");
        }
    }

    #[test]
    fn a_file_is_found_by_both_of_its_numbers_and_closed_by_them() {
        let files = OpenedFiles::default();
        files.add(3, Opened::new(tempfile::tempfile().unwrap().into(), 7, libc::O_WRONLY as u32).unwrap());
        assert!(files.find(3, 8).is_none() && files.find(4, 7).is_none());
        let found = files.find(3, 7).unwrap();
        assert!(found.may_be_written() && !found.may_be_read());
        assert!(!files.remove(3, 8));
        assert!(files.remove(3, 7) && files.find(3, 7).is_none());
    }
}
