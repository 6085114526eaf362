//! The owners of a file's locks, and the descriptions for them.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::sync::Arc;

use super::ranges::Ranges;
use super::room::Room;

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
    /// The locked ranges, of record locks.
    pub(in crate::virtio::fs) ranges: Ranges,
}

/// The owners of a file's locks.
#[derive(Debug)]
pub(in crate::virtio::fs) struct Locks {
    held: BTreeMap<Holder, Held>,
    room: Arc<Room>,
}

impl Drop for Locks {
    fn drop(&mut self) {
        self.room.give_owners(self.held.len());
        self.room.give_ranges(self.held.values().map(|held| held.ranges.len()).sum());
    }
}

impl Locks {
    /// No locks.
    pub(in crate::virtio::fs) fn new(room: Arc<Room>) -> Locks {
        Locks { held: BTreeMap::new(), room }
    }

    pub(in crate::virtio::fs) fn is_empty(&self) -> bool {
        self.held.is_empty()
    }

    pub(in crate::virtio::fs) fn get_mut(&mut self, holder: &Holder) -> Option<&mut Held> {
        self.held.get_mut(holder)
    }

    /// Adds an owner, or gives one another description. Returns ENOLCK if there are too many.
    pub(in crate::virtio::fs) fn insert(&mut self, holder: Holder, held: Held) -> io::Result<&mut Held> {
        // The replaced description may have held something.
        self.remove(&holder);
        self.room.take_owner()?;
        Ok(self.held.entry(holder).insert_entry(held).into_mut())
    }

    /// Has `make` change the ranges of an owner on the host. Returns ENOLCK if there would be too many, as an
    /// unlock in the middle of a range makes two.
    pub(in crate::virtio::fs) fn change(
        &mut self,
        holder: &Holder,
        (start, end, exclusive): (u64, u64, Option<bool>),
        make: impl FnOnce(&File) -> io::Result<()>,
    ) -> io::Result<()> {
        let held = self.held.get_mut(holder).ok_or_else(|| io::Error::from_raw_os_error(libc::ENOLCK))?;
        let (change, before) = (held.ranges.change(start, end, exclusive), held.ranges.len());
        self.room.take_ranges(change.growth())?;
        if let Err(error) = make(&held.file) {
            self.room.give_ranges(change.growth());
            return Err(error);
        }
        held.ranges.apply(&change);
        self.room.give_ranges((before + change.growth()).saturating_sub(held.ranges.len()));
        Ok(())
    }

    /// Releases all locks of an owner on the file.
    pub(in crate::virtio::fs) fn remove(&mut self, holder: &Holder) {
        if let Some(held) = self.held.remove(holder) {
            self.room.give_owners(1);
            self.room.give_ranges(held.ranges.len());
            self.room.note_freed();
        }
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

    /// Notes the release of a lock, whole or in part.
    pub(in crate::virtio::fs) fn note_freed(&self) {
        self.room.note_freed();
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::super::room::Bounds;
    use super::*;

    pub(in super::super) fn held(handle: u64) -> Held {
        Held {
            file: tempfile::tempfile().unwrap(),
            handle,
            pid: 1,
            writable: true,
            ranges: Ranges::default(),
        }
    }

    pub(in super::super) fn holder(inode: u64, owner: u64, scheme: Scheme) -> Holder {
        Holder { inode, owner, scheme }
    }

    #[test]
    fn an_ended_file_gives_up_its_own_locks_of_both_kinds() {
        let room = Arc::new(Room::new(Bounds { owners: 4, ranges: 0 }));
        let mut locks = Locks::new(Arc::clone(&room));
        let kept = [holder(1, 7, Scheme::Records), holder(2, 5, Scheme::Flock)];
        let ended = [holder(1, 5, Scheme::Records), holder(1, u64::MAX, Scheme::Flock)];
        for (holder, handle) in [(kept[0], 9), (kept[1], 3), (ended[0], 3), (ended[1], 3)] {
            locks.insert(holder, held(handle)).unwrap();
        }
        let more = locks.insert(holder(3, 1, Scheme::Flock), held(1)).unwrap_err();
        assert_eq!(more.raw_os_error(), Some(libc::ENOLCK));
        // The owner of a lock may have another description at any time.
        locks.insert(kept[0], held(9)).unwrap();
        assert!(room.take_freed());
        locks.remove_handle(1, 3);
        assert!(room.take_freed() && !room.take_freed());
        assert!(kept.iter().all(|holder| locks.get_mut(holder).is_some()));
        assert!(ended.iter().all(|holder| locks.get_mut(holder).is_none()));
        assert_eq!(locks.of_records(1).map(|(holder, _)| holder.owner).collect::<Vec<_>>(), [7]);
    }

    #[test]
    fn more_ranges_than_the_bound_are_refused_and_the_host_is_not_asked() {
        let room = Arc::new(Room::new(Bounds { owners: 2, ranges: 3 }));
        let mut locks = Locks::new(Arc::clone(&room));
        let [one, other] = [1, 2].map(|owner| holder(1, owner, Scheme::Records));
        for holder in [one, other] {
            locks.insert(holder, held(1)).unwrap();
        }
        let mut asked = 0;
        let mut change = |locks: &mut Locks, holder, start, end, exclusive| {
            let made = locks.change(holder, (start, end, exclusive), |_| {
                asked += 1;
                Ok(())
            });
            made.map_err(|error| error.raw_os_error().unwrap())
        };
        change(&mut locks, &one, 0, 99, Some(true)).unwrap();
        change(&mut locks, &other, 0, 9, Some(false)).unwrap();
        change(&mut locks, &other, 20, 29, Some(false)).unwrap();
        assert_eq!(change(&mut locks, &other, 40, 49, Some(false)), Err(libc::ENOLCK));
        // An unlock in the middle is one more.
        assert_eq!(change(&mut locks, &one, 50, 50, None), Err(libc::ENOLCK));
        // A longer range is none, and a lock less makes room.
        change(&mut locks, &other, 30, 39, Some(false)).unwrap();
        change(&mut locks, &other, 0, 9, None).unwrap();
        change(&mut locks, &one, 50, 50, None).unwrap();
        // So does the end of an owner.
        locks.remove(&one);
        change(&mut locks, &other, 50, 50, Some(true)).unwrap();
        assert_eq!((room.taken(), asked), ((1, 2), 7));
    }

    #[test]
    fn what_the_host_refuses_is_not_counted() {
        let room = Arc::new(Room::new(Bounds { owners: 1, ranges: 1 }));
        let mut locks = Locks::new(Arc::clone(&room));
        let owner = holder(1, 1, Scheme::Records);
        locks.insert(owner, held(1)).unwrap();
        let busy = || Err(io::Error::from_raw_os_error(libc::EAGAIN));
        locks.change(&owner, (0, 9, Some(true)), |_| busy()).unwrap_err();
        assert_eq!(room.taken(), (1, 0));
        locks.change(&owner, (0, 9, Some(true)), |_| Ok(())).unwrap();
        assert_eq!(room.taken(), (1, 1));
        drop(locks);
        assert_eq!(room.taken(), (0, 0));
    }
}
