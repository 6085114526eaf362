//! Descriptions of open directories for their listings. Each has a position of its own, which one thread
//! moves at a time.

use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Open directories, by the driver's numbers.
#[derive(Debug, Default)]
pub(super) struct Listings(Mutex<HashMap<u64, Arc<Mutex<File>>>>);

impl Listings {
    fn all(&self) -> MutexGuard<'_, HashMap<u64, Arc<Mutex<File>>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn insert(&self, handle: u64, directory: File) {
        self.all().insert(handle, Arc::new(Mutex::new(directory)));
    }

    pub(super) fn find(&self, handle: u64) -> io::Result<Arc<Mutex<File>>> {
        self.all().get(&handle).cloned().ok_or_else(|| io::Error::from_raw_os_error(libc::EBADF))
    }

    /// Closes a directory that the driver has released.
    pub(super) fn remove(&self, handle: u64) {
        let closed = self.all().remove(&handle);
        // One of another node may take time to close.
        drop(closed);
    }

    pub(super) fn clear(&self) {
        let closed = std::mem::take(&mut *self.all());
        drop(closed);
    }
}
