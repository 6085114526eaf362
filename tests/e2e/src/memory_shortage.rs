//! A node with a pretended shortage of memory.

use std::path::Path;
use std::process::Command;

use anyhow::ensure;

/// The kernel's account of how long work waited for memory (Documentation/accounting/psi.rst).
const PRESSURE: &str = "/proc/pressure/memory";

/// Work waited for memory half of the time.
const STALLED: &str =
    "some avg10=50.00 avg60=50.00 avg300=50.00 total=1\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=0\n";

/// The kernel's account of the node's memory (proc_meminfo(5)).
const MEMINFO: &str = "/proc/meminfo";

/// Part of the node's memory that is available, for readers of the account: stalls count below a quarter.
const AVAILABLE_PART: u64 = 5;

/// Files over the kernel's own, for every program of the node until this is dropped.
#[derive(Debug)]
#[must_use = "the node has memory again once this is dropped"]
pub struct MemoryShortage;

impl MemoryShortage {
    /// Begins one, with the files in `dir`.
    ///
    /// # Errors
    /// When the files cannot be written or mounted.
    pub fn pretend(dir: &Path) -> anyhow::Result<MemoryShortage> {
        let meminfo = with_little_available(&std::fs::read_to_string(MEMINFO)?);
        let shortage = MemoryShortage;
        for (name, text, over) in [("meminfo", meminfo.as_str(), MEMINFO), ("pressure", STALLED, PRESSURE)] {
            let file = dir.join(name);
            std::fs::write(&file, text)?;
            let status = Command::new("mount").arg("--bind").arg(&file).arg(over).status()?;
            ensure!(status.success(), "mount over {over}: {status}");
        }
        Ok(shortage)
    }
}

/// The account with another `MemAvailable`.
fn with_little_available(meminfo: &str) -> String {
    let total = meminfo.lines().find_map(|line| line.strip_prefix("MemTotal:")?.split_whitespace().next());
    let available = total.and_then(|kib| kib.parse::<u64>().ok()).unwrap_or_default() / AVAILABLE_PART;
    let changed = |line: &str| match line.starts_with("MemAvailable:") {
        true => format!("MemAvailable: {available} kB\n"),
        false => format!("{line}\n"),
    };
    meminfo.lines().map(changed).collect()
}

impl Drop for MemoryShortage {
    fn drop(&mut self) {
        for over in [PRESSURE, MEMINFO] {
            let _ = Command::new("umount").arg(over).status();
        }
    }
}
