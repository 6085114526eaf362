//! The daemon's own process, under the names that Prometheus' client libraries have for it. A figure that cannot be read is left out.

use std::fs;

use prometheus::core::Collector;
use prometheus::proto::MetricFamily;
use prometheus::{Gauge, Opts};

pub(super) fn figures() -> Vec<MetricFamily> {
    let resident = fs::read_to_string("/proc/self/status").ok().and_then(|text| resident_bytes(&text));
    let open = fs::read_dir("/proc/self/fd").ok().map(|entries| entries.count() as f64);
    let gauges = [
        ("process_resident_memory_bytes", "Resident memory of the daemon.", resident),
        ("process_open_fds", "Open descriptors of the daemon.", open),
    ];
    gauges.into_iter().filter_map(|(name, help, value)| gauge(name, help, value?)).flatten().collect()
}

/// The kernel's figure in KiB (Documentation/filesystems/proc.rst, `/proc/<pid>/status`).
fn resident_bytes(status: &str) -> Option<f64> {
    let figure = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kib: u64 = figure.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some((kib * 1024) as f64)
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
        assert_eq!(figures().len(), 2);
    }
}
