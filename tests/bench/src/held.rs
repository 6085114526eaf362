//! Memory and descriptors of a process.

use anyhow::Context;

/// Memory and descriptors of the daemon's process.
pub(crate) struct Held {
    pub(crate) rss_kib: u64,
    pub(crate) descriptors: usize,
}

impl Held {
    /// Reads it from `/proc` (proc_pid_status(5), `VmRSS`).
    pub(crate) fn by(pid: u32) -> anyhow::Result<Held> {
        let status = std::fs::read_to_string(format!("/proc/{pid}/status"))?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).context("no VmRSS")?;
        let rss_kib = line.trim().trim_end_matches(" kB").parse().context("VmRSS")?;
        Ok(Held { rss_kib, descriptors: std::fs::read_dir(format!("/proc/{pid}/fd"))?.count() })
    }
}
