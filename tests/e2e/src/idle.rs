//! The cost of a process while nothing is asked of it, of a VMM above all: memory by the kernel's own
//! account, how often each thread wakes, and how much of a CPU it takes.

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
    /// Part of a CPU during the watch, in percent; a vCPU's has the guest's work in it.
    pub cpu_percent: f64,
}

/// A process at rest.
#[derive(Clone, Debug, PartialEq)]
pub struct Idle {
    /// Proportional set size of the whole process, KiB.
    pub pss_kib: u64,
    /// Anonymous memory in it, KiB: the guest's RAM, but for a megabyte or two of the VMM's own.
    pub pss_anonymous_kib: u64,
    /// The process's threads.
    pub threads: Vec<Thread>,
}

impl Idle {
    /// Wakeups per second above this value count as polling.
    pub const WAKEUPS_PER_SECOND_MAX: f64 = 10.0;

    /// Lets the process come to rest, then watches it.
    ///
    /// # Errors
    /// When the process is gone.
    pub async fn measure(pid: u32) -> anyhow::Result<Idle> {
        tokio::time::sleep(SETTLE).await;
        let process = Path::new("/proc").join(pid.to_string());
        let before = counted(&process)?;
        let started = std::time::Instant::now();
        tokio::time::sleep(WATCH).await;
        let after = counted(&process)?;
        let threads = since(&before, &after, started.elapsed());
        let rollup = std::fs::read_to_string(process.join("smaps_rollup")).context("reading smaps_rollup")?;
        Ok(Idle { pss_kib: field(&rollup, "Pss:"), pss_anonymous_kib: field(&rollup, "Pss_Anon:"), threads })
    }

    /// Wakeups per second of the busiest thread.
    pub fn busiest(&self) -> f64 {
        self.threads.iter().map(|thread| thread.wakeups_per_second).fold(0.0, f64::max)
    }

    /// Wakeups a second of all threads together.
    pub fn wakeups_per_second(&self) -> f64 {
        self.threads.iter().map(|thread| thread.wakeups_per_second).sum()
    }

    /// CPU use of all threads together, in percent.
    pub fn cpu_percent(&self) -> f64 {
        self.threads.iter().map(|thread| thread.cpu_percent).sum()
    }
}

/// The kernel's counters of a thread.
struct Counted {
    tid: String,
    name: String,
    /// Voluntary context switches: every wake-up of a waiting thread ends in one.
    switches: u64,
    /// Nanoseconds on a CPU (Documentation/scheduler/sched-stats.rst, `/proc/<pid>/schedstat`).
    cpu_ns: u64,
}

fn counted(process: &Path) -> anyhow::Result<Vec<Counted>> {
    let mut found = Vec::new();
    for task in std::fs::read_dir(process.join("task")).context("the process is gone")?.flatten() {
        let Ok(status) = std::fs::read_to_string(task.path().join("status")) else { continue };
        let name = std::fs::read_to_string(task.path().join("comm")).unwrap_or_default();
        let schedstat = std::fs::read_to_string(task.path().join("schedstat")).unwrap_or_default();
        found.push(Counted {
            tid: task.file_name().to_string_lossy().into_owned(),
            name: name.trim().to_owned(),
            switches: field(&status, "voluntary_ctxt_switches:"),
            cpu_ns: field(&schedstat, ""),
        });
    }
    Ok(found)
}

/// Each thread's figures for the time between two counts. A new thread counts from zero.
#[expect(clippy::cast_precision_loss, reason = "counts of some seconds are far below 2^52")]
fn since(before: &[Counted], after: &[Counted], between: Duration) -> Vec<Thread> {
    let seconds = between.as_secs_f64();
    let thread = |now: &Counted| {
        let (switches, cpu_ns) = before
            .iter()
            .find(|then| then.tid == now.tid)
            .map_or((0, 0), |then| (then.switches, then.cpu_ns));
        Thread {
            name: now.name.clone(),
            wakeups_per_second: now.switches.saturating_sub(switches) as f64 / seconds,
            cpu_percent: now.cpu_ns.saturating_sub(cpu_ns) as f64 / seconds / 1e7,
        }
    };
    after.iter().map(thread).collect()
}

/// The number after a key at the beginning of a line; 0 if the kernel does not have it.
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

    #[test]
    fn a_threads_figures_are_those_of_the_time_between_two_counts() {
        let counted =
            |switches, cpu_ns| Counted { tid: "7".to_owned(), name: "vcpu0".to_owned(), switches, cpu_ns };
        let threads = since(&[counted(100, 5_000_000)], &[counted(120, 25_000_000)], Duration::from_secs(2));
        assert_eq!(
            threads,
            [Thread { name: "vcpu0".to_owned(), wakeups_per_second: 10.0, cpu_percent: 1.0 }]
        );
        let new = since(&[], &[counted(4, 0)], Duration::from_secs(2));
        assert_eq!(new[0].wakeups_per_second.to_bits(), 2.0_f64.to_bits());
    }
}
