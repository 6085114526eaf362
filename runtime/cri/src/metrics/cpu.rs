//! CPU time, and time lost for want of it.

use super::metric::{Metric, Values, counter, maybe, one, seconds};

pub(super) const METRICS: &[Metric] = &[
    Metric {
        // All CPUs together, as cAdvisor has it unless it counts each: rules ask for `cpu="total"`.
        labels: &["cpu"],
        container: |c| total(c.usage.cpu.usage_ns),
        pod: |p| total(p.usage.host.cpu.usage_ns),
        ..counter("container_cpu_usage_seconds_total", "CPU time used, in seconds.")
    },
    Metric {
        container: |c| one(seconds(c.usage.cpu.user_ns)),
        pod: |p| one(seconds(p.usage.host.cpu.user_ns)),
        ..counter("container_cpu_user_seconds_total", "CPU time used in user mode, in seconds.")
    },
    Metric {
        container: |c| one(seconds(c.usage.cpu.system_ns)),
        pod: |p| one(seconds(p.usage.host.cpu.system_ns)),
        ..counter("container_cpu_system_seconds_total", "CPU time used in the kernel, in seconds.")
    },
    Metric {
        container: |c| one(c.usage.cpu.periods),
        ..counter("container_cpu_cfs_periods_total", "Enforcement periods of the CPU quota that have passed.")
    },
    Metric {
        container: |c| one(c.usage.cpu.throttled_periods),
        ..counter("container_cpu_cfs_throttled_periods_total", "Periods in which the CPU quota ran out.")
    },
    Metric {
        container: |c| one(seconds(c.usage.cpu.throttled_ns)),
        ..counter("container_cpu_cfs_throttled_seconds_total", "Time held back by the CPU quota, in seconds.")
    },
    Metric {
        container: |c| maybe(c.usage.cpu.pressure.as_ref().map(|p| seconds(p.some.total_ns))),
        ..counter(
            "container_pressure_cpu_waiting_seconds_total",
            "Time in which some task waited for a CPU, in seconds.",
        )
    },
    Metric {
        container: |c| maybe(c.usage.cpu.pressure.as_ref().map(|p| seconds(p.full.total_ns))),
        ..counter(
            "container_pressure_cpu_stalled_seconds_total",
            "Time in which all tasks waited for a CPU, in seconds.",
        )
    },
];

fn total(nanoseconds: u64) -> Values {
    vec![(vec!["total".to_owned()], seconds(nanoseconds))]
}
