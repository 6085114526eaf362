//! A node with a pretended shortage of memory.

use std::path::Path;
use std::process::Command;

use anyhow::ensure;

/// The kernel's account of how long work waited for memory (Documentation/accounting/psi.rst).
const PRESSURE: &str = "/proc/pressure/memory";

/// Work waited for memory half of the time.
const STALLED: &str =
    "some avg10=50.00 avg60=50.00 avg300=50.00 total=1\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=0\n";

/// A file over the kernel's own, for every program of the node until this is dropped.
#[derive(Debug)]
#[must_use = "the node has memory again once this is dropped"]
pub struct MemoryShortage;

impl MemoryShortage {
    /// Begins one, with the file in `dir`.
    ///
    /// # Errors
    /// When the file cannot be written or mounted.
    pub fn pretend(dir: &Path) -> anyhow::Result<MemoryShortage> {
        let file = dir.join("pressure");
        std::fs::write(&file, STALLED)?;
        let status = Command::new("mount").arg("--bind").arg(&file).arg(PRESSURE).status()?;
        ensure!(status.success(), "mount over {PRESSURE}: {status}");
        Ok(MemoryShortage)
    }
}

impl Drop for MemoryShortage {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(PRESSURE).status();
    }
}
