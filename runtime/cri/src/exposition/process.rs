//! The daemon's own process, under the names used by Prometheus' client libraries. Unreadable values are left
//! out.

use std::fs;
use std::sync::LazyLock;

use prometheus::core::Collector;
use prometheus::proto::MetricFamily;
use prometheus::{Gauge, Opts};

/// Clock ticks of `/proc/<pid>/stat` in a second: `USER_HZ`, a part of Linux's interface.
const TICKS_PER_SECOND: f64 = 100.0;

/// The start of the daemon in seconds since the epoch. Computed once: the kernel's time of boot moves with
/// the clock, and a changed value would count as another start.
static STARTED: LazyLock<Option<f64>> = LazyLock::new(|| {
    let process = fs::read_to_string("/proc/self/stat").ok()?;
    start_seconds(&process, &fs::read_to_string("/proc/stat").ok()?)
});

pub(super) fn figures() -> Vec<MetricFamily> {
    let resident = fs::read_to_string("/proc/self/status").ok().and_then(|text| resident_bytes(&text));
    let open = fs::read_dir("/proc/self/fd").ok().map(|entries| entries.count() as f64);
    let limits = fs::read_to_string("/proc/self/limits").ok();
    let gauges = [
        ("process_resident_memory_bytes", "Resident memory of the daemon.", resident),
        ("process_open_fds", "Open descriptors of the daemon.", open),
        (
            "process_max_fds",
            "Descriptors that the daemon may have open.",
            limits.and_then(|text| open_max(&text)),
        ),
        ("process_start_time_seconds", "The start of the daemon, in seconds since the epoch.", *STARTED),
    ];
    gauges.into_iter().filter_map(|(name, help, value)| gauge(name, help, value?)).flatten().collect()
}

/// The kernel's value in KiB (Documentation/filesystems/proc.rst, `/proc/<pid>/status`).
fn resident_bytes(status: &str) -> Option<f64> {
    let figure = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kib: u64 = figure.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some((kib * 1024) as f64)
}

/// The current limit (proc(5), `/proc/<pid>/limits`). "unlimited" is `None`.
fn open_max(limits: &str) -> Option<f64> {
    let limit = limits.lines().find_map(|line| line.strip_prefix("Max open files"))?;
    limit.split_whitespace().next()?.parse::<u64>().ok().map(|count| count as f64)
}

/// Field 22 of `/proc/<pid>/stat`, in ticks since the boot, added to the boot time from `/proc/stat`
/// (proc(5)). The name of the process, field 2, is in parentheses and may contain any characters.
fn start_seconds(process: &str, system: &str) -> Option<f64> {
    let ticks: u64 = process.rsplit_once(')')?.1.split_whitespace().nth(22 - 3)?.parse().ok()?;
    let boot: u64 = system.lines().find_map(|line| line.strip_prefix("btime "))?.trim().parse().ok()?;
    Some(boot as f64 + ticks as f64 / TICKS_PER_SECOND)
}

fn gauge(name: &str, help: &str, value: f64) -> Option<Vec<MetricFamily>> {
    let gauge = Gauge::with_opts(Opts::new(name, help)).ok()?;
    gauge.set(value);
    Some(gauge.collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_resident_memory_is_the_kernels_figure_in_bytes() {
        assert_eq!(resident_bytes("Name:\tpodvisor\nVmRSS:\t   22776 kB\nThreads:\t9\n"), Some(23_322_624.0));
        for wrong in ["", "VmRSS:", "VmRSS:\tmany kB", "VmHWM:\t1 kB"] {
            assert_eq!(resident_bytes(wrong), None, "{wrong}");
        }
        assert_eq!(figures().len(), 4);
    }

    #[test]
    fn the_limit_of_descriptors_is_the_one_in_force() {
        let limits = "Limit                     Soft Limit           Hard Limit           Units\n\
                      Max open files            1024                 524288               files\n";
        assert_eq!(open_max(limits), Some(1024.0));
        for wrong in ["", "Max open files", "Max open files unlimited unlimited files"] {
            assert_eq!(open_max(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn the_start_is_the_boot_and_the_ticks_after_it() {
        let process = "7 (a ) b) S 1 7 7 0 -1 4194560 1 0 0 0 3 2 0 0 20 0 9 0 1250 9 9 9";
        assert_eq!(start_seconds(process, "cpu 1 2\nbtime 1700000000\n"), Some(1_700_000_012.5));
        for (process, system) in
            [("", "btime 1"), ("7 (a) S 1", "btime 1"), (process, "cpu 1"), (process, "btime x")]
        {
            assert_eq!(start_seconds(process, system), None, "{process} {system}");
        }
    }
}
