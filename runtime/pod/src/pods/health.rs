//! The daemon's own trouble, for health checks. Nothing here changes a pod.

use std::io;
use std::sync::Arc;

use super::Pods;
use crate::view::PodView;

impl Pods {
    /// Why the records' disk accepts no changes; `None` if it does, as far as is known. The call does not
    /// wait for a disk. A disk in trouble is retried on each call.
    pub fn records_trouble(&self) -> Option<String> {
        self.node.records.trouble()
    }

    /// The pods still being recovered after the daemon's start, oldest first.
    pub fn recovering(&self) -> Vec<Arc<PodView>> {
        self.node.roster.recovering()
    }

    /// Free bytes of the file system with images, disks and records. Blocks on the disk.
    ///
    /// # Errors
    /// The file system cannot be queried.
    pub fn state_bytes_free(&self) -> io::Result<u64> {
        let disk = rustix::fs::statvfs(&self.node.places.dirs.state_dir)?;
        // The daemon may use the blocks reserved for root.
        Ok(disk.f_bfree.saturating_mul(disk.f_frsize))
    }
}
