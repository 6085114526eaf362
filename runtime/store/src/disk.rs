//! The store's file as written by the database, with disk blocks allocated in advance.
//!
//! ```text
//!   ├──────── the file ────────┤┄┄┄┄┄┄┄ reserved for its growth ┄┄┄┄┄┄┄┤
//!        no holes: a write           blocks beyond its end, so that the
//!        needs no room               database can double on a full disk
//! ```
//!
//! So a commit needs no free disk space, and the store can record the changes that free a full disk. Locks,
//! reads and writes are the database's own.

use std::fs::{File, OpenOptions};
use std::io;
use std::ops::Bound;
use std::path::Path;

use redb::backends::{FileBackend, InMemoryBackend};
use redb::{BackendError, Builder, Database, StorageBackend};
use rustix::fs::{FallocateFlags, fallocate};
use rustix::io::Errno;

/// Bytes reserved beyond twice the file's length: for the first growth of a small file.
const RESERVED_BYTES_MIN: u64 = 1 << 20;

/// The database's own file, and a second handle for allocation.
#[derive(Debug)]
struct Disk {
    backend: FileBackend,
    file: File,
}

/// Opens the database in an existing file.
pub(crate) fn open(path: &Path) -> Result<Database, redb::Error> {
    let file = OpenOptions::new().read(true).write(true).open(path)?;
    let length = file.metadata()?.len();
    if length == 0 {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "the file is empty").into());
    }
    if let Err(error) = allocate(&file, FallocateFlags::empty(), length) {
        // The file may come from elsewhere. On a full disk it is used as it is.
        tracing::debug!(path = %path.display(), %error, "the store's file keeps its holes");
    }
    reserve(&file, length);
    let disk = Disk { backend: FileBackend::new(file.try_clone()?)?, file };
    Ok(Builder::new().create_with_backend(disk)?)
}

/// Opens a copy of the file in memory.
pub(crate) fn open_copy(path: &Path) -> Result<Database, redb::Error> {
    let content = std::fs::read(path)?;
    let memory = InMemoryBackend::new();
    memory.set_len(content.len() as u64)?;
    memory.write(0, &content)?;
    Ok(Builder::new().create_with_backend(memory)?)
}

/// Reserves blocks beyond the file's end. On a full disk this fails, and earlier reservations stay.
fn reserve(file: &File, length: u64) {
    let wanted = length.saturating_mul(2).saturating_add(RESERVED_BYTES_MIN);
    if let Err(error) = allocate(file, FallocateFlags::KEEP_SIZE, wanted) {
        tracing::debug!(%error, "no room is reserved for the store");
    }
}

fn allocate(file: &File, flags: FallocateFlags, length: u64) -> io::Result<()> {
    match fallocate(file, flags, 0, length) {
        // A file system without preallocation allocates on each write.
        Ok(()) | Err(Errno::OPNOTSUPP) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

impl StorageBackend for Disk {
    fn len(&self) -> io::Result<u64> {
        self.backend.len()
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        self.backend.read(offset, out)
    }

    fn set_len(&self, length: u64) -> io::Result<()> {
        if length > self.backend.len()? {
            allocate(&self.file, FallocateFlags::empty(), length)?;
        }
        self.backend.set_len(length)?;
        // Truncating the file has released the reservation.
        reserve(&self.file, length);
        Ok(())
    }

    fn sync_data(&self) -> io::Result<()> {
        self.backend.sync_data()
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.backend.write(offset, data)
    }

    fn close(&self) -> io::Result<()> {
        self.backend.close()
    }

    fn try_lock_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<bool, BackendError> {
        self.backend.try_lock_range(start, end)
    }

    fn try_lock_shared_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<bool, BackendError> {
        self.backend.try_lock_shared_range(start, end)
    }

    fn lock_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<(), BackendError> {
        self.backend.lock_range(start, end)
    }

    fn lock_shared_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<(), BackendError> {
        self.backend.lock_shared_range(start, end)
    }

    fn unlock_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<(), BackendError> {
        self.backend.unlock_range(start, end)
    }

    fn query_lock_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<bool, BackendError> {
        self.backend.query_lock_range(start, end)
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt;

    use super::*;

    #[test]
    fn the_file_has_blocks_for_all_of_it_and_for_its_growth() {
        let dir = tempfile::tempdir().unwrap();
        let probe = File::create(dir.path().join("probe")).unwrap();
        if fallocate(&probe, FallocateFlags::empty(), 0, 4096).is_err() {
            eprintln!("skipped: this file system does not allocate ahead");
            return;
        }
        let path = dir.path().join("store.redb");
        drop(Database::create(&path).unwrap());
        drop(open(&path).unwrap());
        let file = path.metadata().unwrap();
        assert!(file.blocks() * 512 > 2 * file.len(), "{} blocks for {} bytes", file.blocks(), file.len());
    }
}
