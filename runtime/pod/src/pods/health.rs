//! Trouble that the daemon itself has, for those who watch the node. Nothing here changes a pod.

use std::io;
use std::sync::Arc;

use super::Pods;
use crate::view::PodView;

impl Pods {
    /// Why the disk of the records takes no changes; `None` while it does, as far as is known. The call waits for no disk. A disk
    /// that was in trouble is tried again each time somebody asks.
    pub fn records_trouble(&self) -> Option<String> {
        self.node.records.trouble()
    }

    /// The pods that are still being recovered after the daemon's start, oldest first.
    pub fn recovering(&self) -> Vec<Arc<PodView>> {
        self.node.roster.recovering()
    }

    /// Free bytes of the file system that images, disks and records are on. Blocks on the disk.
    ///
    /// # Errors
    /// The file system does not say.
    pub fn state_bytes_free(&self) -> io::Result<u64> {
        let disk = rustix::fs::statvfs(&self.node.places.dirs.state_dir)?;
        // The daemon may use what is reserved for root.
        Ok(disk.f_bfree.saturating_mul(disk.f_frsize))
    }
}
