//! The files with locks, each with a mutex of its own: a call for one may wait for a file server, and the
//! close of a file of another does not wait for it.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::room::{Bounds, Room};
use super::table::Locks;

/// All files of a share that have locks, by the driver's numbers.
#[derive(Debug)]
pub(in crate::virtio::fs) struct LockedFiles {
    files: Mutex<HashMap<u64, Arc<Mutex<Locks>>>>,
    room: Arc<Room>,
}

impl LockedFiles {
    pub(in crate::virtio::fs) fn new(bounds: Bounds) -> LockedFiles {
        LockedFiles { files: Mutex::default(), room: Arc::new(Room::new(bounds)) }
    }

    /// Works on the locks of a file, of which there may be none.
    pub(in crate::virtio::fs) fn with<T>(&self, inode: u64, work: impl FnOnce(&mut Locks) -> T) -> T {
        let of_file = {
            let mut files = self.files();
            Arc::clone(
                files
                    .entry(inode)
                    .or_insert_with(|| Arc::new(Mutex::new(Locks::new(Arc::clone(&self.room))))),
            )
        };
        let done = work(&mut of_file.lock().unwrap_or_else(PoisonError::into_inner));
        drop(of_file);
        self.forget_unlocked(inode);
        done
    }

    /// Works on the locks of a file, if it has any.
    pub(in crate::virtio::fs) fn with_locked(&self, inode: u64, work: impl FnOnce(&mut Locks)) {
        let Some(of_file) = self.files().get(&inode).cloned() else { return };
        work(&mut of_file.lock().unwrap_or_else(PoisonError::into_inner));
        drop(of_file);
        self.forget_unlocked(inode);
    }

    /// Forgets all locks. Those of a file that is worked on go when the work is done.
    pub(in crate::virtio::fs) fn clear(&self) {
        let files = std::mem::take(&mut *self.files());
        drop(files);
        self.room.take_freed();
    }

    /// Returns true if a lock was released since the last call.
    pub(in crate::virtio::fs) fn take_freed(&self) -> bool {
        self.room.take_freed()
    }

    /// Forgets a file that has no locks, unless another thread works on it: that one forgets it then.
    fn forget_unlocked(&self, inode: u64) {
        let mut files = self.files();
        let is_unlocked = |of_file: &Arc<Mutex<Locks>>| {
            Arc::strong_count(of_file) == 1 && of_file.try_lock().is_ok_and(|locks| locks.is_empty())
        };
        if files.get(&inode).is_some_and(is_unlocked) {
            files.remove(&inode);
        }
    }

    fn files(&self) -> MutexGuard<'_, HashMap<u64, Arc<Mutex<Locks>>>> {
        self.files.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::super::table::tests::{held, holder};
    use super::*;
    use crate::virtio::fs::locks::Scheme;

    #[test]
    fn a_file_that_is_waited_for_holds_up_no_other() {
        let files = Arc::new(LockedFiles::new(Bounds::default()));
        let owner = holder(2, 1, Scheme::Flock);
        files.with(2, |locks| locks.insert(owner, held(1)).map(drop)).unwrap();
        let (go_on, waiting) = mpsc::channel::<()>();
        let (begun, begins) = mpsc::channel();
        let of_thread = Arc::clone(&files);
        let hung = std::thread::spawn(move || {
            of_thread.with(1, |_| {
                begun.send(()).unwrap();
                waiting.recv().unwrap();
            });
        });
        begins.recv().unwrap();
        files.with_locked(2, |locks| locks.remove(&owner));
        assert!(files.take_freed() && !files.files().contains_key(&2));
        files.clear();
        go_on.send(()).unwrap();
        hung.join().unwrap();
        assert!(files.files().is_empty());
    }

    #[test]
    fn files_without_locks_are_forgotten_and_give_their_room_back() {
        let files = LockedFiles::new(Bounds { owners: 2, ranges: 1 });
        for inode in 0..100 {
            let owner = holder(inode, 1, Scheme::Records);
            files.with(inode, |locks| locks.insert(owner, held(1)).map(drop)).unwrap();
            files.with(inode, |locks| locks.change(&owner, (0, 9, Some(true)), |_| Ok(()))).unwrap();
            files.with_locked(inode, |locks| locks.remove(&owner));
            files.with_locked(inode, |_| panic!("it has no locks"));
        }
        assert!(files.files().is_empty());
        let owner = holder(1, 1, Scheme::Records);
        files.with(1, |locks| locks.insert(owner, held(1)).map(drop)).unwrap();
        files.with(1, |locks| locks.change(&owner, (0, 9, Some(true)), |_| Ok(()))).unwrap();
        files.clear();
        assert_eq!(files.room.taken(), (0, 0));
    }
}
