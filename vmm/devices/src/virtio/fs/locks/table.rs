//! The owners of locks, and the descriptions for them.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;

/// Most owners of locks in a pod, counted once for each locked file. Each costs the host a descriptor. A
/// database locks a file or a few, and a mail server one for each open mailbox.
pub(in crate::virtio::fs) const OWNERS_MAX: usize = 4096;

/// The kind of a lock. The kinds do not see each other, as on Linux.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::virtio::fs) enum Scheme {
    /// Ranges of bytes, by fcntl(2).
    Records,
    /// Whole files, by flock(2).
    Flock,
}

/// An owner of locks on one file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::virtio::fs) struct Holder {
    pub(in crate::virtio::fs) inode: u64,
    pub(in crate::virtio::fs) owner: u64,
    pub(in crate::virtio::fs) scheme: Scheme,
}

/// The description of an owner's locks.
#[derive(Debug)]
pub(in crate::virtio::fs) struct Held {
    pub(in crate::virtio::fs) file: File,
    /// The guest's open file behind the owner's first lock. With its end there is nobody left to unlock.
    pub(in crate::virtio::fs) handle: u64,
    /// The latest process to ask, in the guest.
    pub(in crate::virtio::fs) pid: u32,
    /// True if `file` was opened for writing, too.
    pub(in crate::virtio::fs) writable: bool,
}

/// All owners of a share.
#[derive(Debug)]
pub(in crate::virtio::fs) struct Locks {
    held: BTreeMap<Holder, Held>,
    owners_max: usize,
    /// A lock was released since the last question.
    freed: bool,
}

impl Locks {
    /// No locks, and room for this many owners.
    pub(in crate::virtio::fs) fn new(owners_max: usize) -> Locks {
        Locks { held: BTreeMap::new(), owners_max, freed: false }
    }

    pub(in crate::virtio::fs) fn get_mut(&mut self, holder: &Holder) -> Option<&mut Held> {
        self.held.get_mut(holder)
    }

    /// Adds an owner, or gives one another description. Returns ENOLCK if there are too many.
    pub(in crate::virtio::fs) fn insert(&mut self, holder: Holder, held: Held) -> io::Result<&mut Held> {
        if self.held.len() >= self.owners_max && !self.held.contains_key(&holder) {
            return Err(io::Error::from_raw_os_error(libc::ENOLCK));
        }
        // The replaced description may have held something.
        self.freed |= self.held.contains_key(&holder);
        Ok(self.held.entry(holder).insert_entry(held).into_mut())
    }

    /// Releases all locks of an owner on a file.
    pub(in crate::virtio::fs) fn remove(&mut self, holder: &Holder) {
        self.freed |= self.held.remove(holder).is_some();
    }

    /// Releases the locks of an ended open file of the guest.
    pub(in crate::virtio::fs) fn remove_handle(&mut self, inode: u64, handle: u64) {
        let of_file = |owner, scheme| Holder { inode, owner, scheme };
        let range = of_file(0, Scheme::Records)..=of_file(u64::MAX, Scheme::Flock);
        let ended: Vec<Holder> = self
            .held
            .range(range)
            .filter(|(_, held)| held.handle == handle)
            .map(|(holder, _)| *holder)
            .collect();
        for holder in ended {
            self.remove(&holder);
        }
    }

    /// Owners of record locks on a file.
    pub(in crate::virtio::fs) fn of_records(&self, inode: u64) -> impl Iterator<Item = (&Holder, &Held)> {
        let of_file = |owner| Holder { inode, owner, scheme: Scheme::Records };
        self.held
            .range(of_file(0)..=of_file(u64::MAX))
            .filter(move |(holder, _)| holder.inode == inode && holder.scheme == Scheme::Records)
    }

    pub(in crate::virtio::fs) fn clear(&mut self) {
        self.held.clear();
        self.freed = false;
    }

    /// Notes the release of a lock, whole or in part.
    pub(in crate::virtio::fs) fn note_freed(&mut self) {
        self.freed = true;
    }

    /// Returns true if a lock was released since the last call.
    pub(in crate::virtio::fs) fn take_freed(&mut self) -> bool {
        std::mem::take(&mut self.freed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn held(handle: u64) -> Held {
        Held { file: tempfile::tempfile().unwrap(), handle, pid: 1, writable: true }
    }

    fn holder(inode: u64, owner: u64, scheme: Scheme) -> Holder {
        Holder { inode, owner, scheme }
    }

    #[test]
    fn an_ended_file_gives_up_its_own_locks_of_both_kinds() {
        let mut locks = Locks::new(4);
        let kept = [holder(1, 7, Scheme::Records), holder(2, 5, Scheme::Flock)];
        let ended = [holder(1, 5, Scheme::Records), holder(1, u64::MAX, Scheme::Flock)];
        for (holder, handle) in [(kept[0], 9), (kept[1], 3), (ended[0], 3), (ended[1], 3)] {
            locks.insert(holder, held(handle)).unwrap();
        }
        let more = locks.insert(holder(3, 1, Scheme::Flock), held(1)).unwrap_err();
        assert_eq!(more.raw_os_error(), Some(libc::ENOLCK));
        // The owner of a lock may have another description at any time.
        locks.insert(kept[0], held(9)).unwrap();
        assert!(locks.take_freed());
        locks.remove_handle(1, 3);
        assert!(locks.take_freed() && !locks.take_freed());
        assert!(kept.iter().all(|holder| locks.get_mut(holder).is_some()));
        assert!(ended.iter().all(|holder| locks.get_mut(holder).is_none()));
        assert_eq!(locks.of_records(1).map(|(holder, _)| holder.owner).collect::<Vec<_>>(), [7]);
    }
}
