//! Metrics of a container's last requested limits.

use runtime_spec::Resources;

use super::metric::{ContainerSource, Metric, gauge, maybe, one};

/// The kernel's default period, in microseconds.
const CPU_PERIOD: u64 = 100_000;

/// The default share of a container.
const CPU_SHARES: u64 = 1024;

pub(super) const METRICS: &[Metric] = &[
    Metric {
        container: |c| one(positive(asked(c).cpu_period).unwrap_or(CPU_PERIOD)),
        ..gauge("container_spec_cpu_period", "Enforcement period of the CPU quota, in microseconds.")
    },
    Metric {
        container: |c| maybe(positive(asked(c).cpu_quota)),
        ..gauge("container_spec_cpu_quota", "CPU time allowed in each period, in microseconds.")
    },
    Metric {
        container: |c| one(positive(asked(c).cpu_shares).unwrap_or(CPU_SHARES)),
        ..gauge("container_spec_cpu_shares", "Share of the CPUs, relative to the other containers'.")
    },
    Metric {
        container: |c| one(positive(asked(c).memory_limit_bytes).unwrap_or(0)),
        ..gauge("container_spec_memory_limit_bytes", "Memory limit in bytes; 0 for none.")
    },
    Metric {
        container: |c| one(reservation(asked(c)).unwrap_or(0)),
        ..gauge(
            "container_spec_memory_reservation_limit_bytes",
            "Memory that is protected from being taken back, in bytes; 0 for none.",
        )
    },
    Metric {
        container: |c| one(positive(asked(c).memory_swap_limit_bytes).unwrap_or(0)),
        ..gauge("container_spec_memory_swap_limit_bytes", "Limit of memory and swap, in bytes; 0 for none.")
    },
];

fn asked<'a>(c: &ContainerSource<'a>) -> &'a Resources {
    &c.view.resources
}

fn reservation(asked: &Resources) -> Option<u64> {
    asked.unified.get("memory.low")?.parse().ok()
}

fn positive(value: i64) -> Option<u64> {
    u64::try_from(value).ok().filter(|&value| value > 0)
}
