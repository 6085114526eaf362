//! The cost of a VMM while its guest does nothing: memory by the kernel's own account, and how often each thread
//! wakes.

use std::path::Path;
use std::time::Duration;

use anyhow::Context;

/// How long a VMM is watched: at ten wakeups a second, fifty are expected at most.
const WATCH: Duration = Duration::from_secs(5);

/// How long a guest gets to come to rest after its last container started.
const SETTLE: Duration = Duration::from_secs(10);

/// A thread and how often it woke.
#[derive(Clone, Debug, PartialEq)]
pub struct Thread {
    /// The thread's name.
    pub name: String,
    /// Wakeups during the watch.
    pub wakeups_per_second: f64,
}

/// A VMM at rest.
#[derive(Clone, Debug, PartialEq)]
pub struct Idle {
    /// Proportional set size of the whole process, KiB.
    pub pss_kib: u64,
    /// Anonymous memory in it, KiB: the guest's RAM, but for a megabyte or two of the VMM's own.
    pub pss_anonymous_kib: u64,
    /// The VMM's threads.
    pub threads: Vec<Thread>,
}

impl Idle {
    /// Wakeups a second above which a thread polls.
    pub const WAKEUPS_PER_SECOND_MAX: f64 = 10.0;

    /// Lets the process come to rest, then watches it.
    ///
    /// # Errors
    /// When the process is gone.
    pub async fn measure(pid: u32) -> anyhow::Result<Idle> {
        tokio::time::sleep(SETTLE).await;
        let process = Path::new("/proc").join(pid.to_string());
        let before = switches(&process)?;
        let started = std::time::Instant::now();
        tokio::time::sleep(WATCH).await;
        let after = switches(&process)?;
        let seconds = started.elapsed().as_secs_f64();
        let threads = after
            .into_iter()
            .map(|(tid, name, count)| {
                let earlier = before.iter().find(|(other, ..)| *other == tid).map_or(0, |(.., count)| *count);
                #[expect(clippy::cast_precision_loss, reason = "a count of wakeups is far below 2^52")]
                Thread { name, wakeups_per_second: count.saturating_sub(earlier) as f64 / seconds }
            })
            .collect();
        let rollup = std::fs::read_to_string(process.join("smaps_rollup")).context("reading smaps_rollup")?;
        Ok(Idle { pss_kib: field(&rollup, "Pss:"), pss_anonymous_kib: field(&rollup, "Pss_Anon:"), threads })
    }

    /// Wakeups a second of the thread that wakes most.
    pub fn busiest(&self) -> f64 {
        self.threads.iter().map(|thread| thread.wakeups_per_second).fold(0.0, f64::max)
    }
}

/// Each thread's id, name and voluntary context switches: every wake-up of a thread that waits ends in one.
fn switches(process: &Path) -> anyhow::Result<Vec<(String, String, u64)>> {
    let mut found = Vec::new();
    for task in std::fs::read_dir(process.join("task")).context("the VMM is gone")?.flatten() {
        let Ok(status) = std::fs::read_to_string(task.path().join("status")) else { continue };
        let name = std::fs::read_to_string(task.path().join("comm")).unwrap_or_default();
        let tid = task.file_name().to_string_lossy().into_owned();
        found.push((tid, name.trim().to_owned(), field(&status, "voluntary_ctxt_switches:")));
    }
    Ok(found)
}

/// The number behind a key at the beginning of a line; 0 where the kernel does not have it.
fn field(text: &str, key: &str) -> u64 {
    text.lines()
        .find_map(|line| line.strip_prefix(key))
        .and_then(|rest| rest.split_whitespace().next())
        .and_then(|number| number.parse().ok())
        .unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_field_is_found_by_its_whole_key() {
        let text = "nonvoluntary_ctxt_switches:\t7\nvoluntary_ctxt_switches:\t42\n";
        assert_eq!(field(text, "voluntary_ctxt_switches:"), 42);
        assert_eq!(field(text, "Pss:"), 0);
    }
}
