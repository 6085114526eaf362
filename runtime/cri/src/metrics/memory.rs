//! Memory, and time lost for want of it.

use super::metric::{ContainerSource, Metric, Values, counter, gauge, maybe, one, seconds};

pub(super) const METRICS: &[Metric] = &[
    Metric {
        container: |c| one(c.usage.memory.usage),
        pod: |p| one(p.usage.host.memory.usage),
        ..gauge("container_memory_usage_bytes", "Memory in use, page cache included, in bytes.")
    },
    Metric {
        container: |c| one(c.usage.memory.working_set()),
        pod: |p| one(p.usage.host.memory.working_set()),
        ..gauge("container_memory_working_set_bytes", "Memory in use that is not idle page cache, in bytes.")
    },
    Metric {
        container: |c| one(c.usage.memory.anon),
        pod: |p| one(p.usage.host.memory.anon),
        ..gauge("container_memory_rss", "Anonymous memory, in bytes.")
    },
    Metric {
        container: |c| one(c.usage.memory.file),
        pod: |p| one(p.usage.host.memory.file),
        ..gauge("container_memory_cache", "Page cache, in bytes.")
    },
    Metric {
        container: |c| one(c.usage.memory.mapped_file),
        ..gauge("container_memory_mapped_file", "Files mapped into memory, in bytes.")
    },
    Metric {
        container: |c| one(c.usage.memory.kernel),
        ..gauge("container_memory_kernel_usage", "Memory that the kernel uses for the container, in bytes.")
    },
    Metric {
        container: |c| one(c.usage.memory.swap),
        ..gauge("container_memory_swap", "Swap in use, in bytes.")
    },
    Metric {
        container: |c| one(c.usage.memory.usage_max),
        ..gauge("container_memory_max_usage_bytes", "Most memory that was ever in use, in bytes.")
    },
    Metric {
        container: |c| one(c.usage.memory.limit_hits),
        ..counter("container_memory_failcnt", "How often the memory limit was reached.")
    },
    Metric {
        labels: &["failure_type", "scope"],
        container: failures,
        ..counter("container_memory_failures_total", "Page faults, by kind and scope.")
    },
    Metric {
        container: |c| one(c.usage.memory.oom_events),
        ..counter("container_oom_events_total", "Processes that the kernel killed for want of memory.")
    },
    Metric {
        labels: &["pagesize"],
        container: |c| {
            let pages = c.usage.hugepages.iter();
            pages.map(|pages| (vec![pages.page_size.clone()], pages.bytes.into())).collect()
        },
        ..gauge("container_hugetlb_usage_bytes", "Huge pages in use, in bytes.")
    },
    Metric {
        container: |c| maybe(c.usage.memory.pressure.as_ref().map(|p| seconds(p.some.total_ns))),
        ..counter(
            "container_pressure_memory_waiting_seconds_total",
            "Time in which some task waited for memory, in seconds.",
        )
    },
    Metric {
        container: |c| maybe(c.usage.memory.pressure.as_ref().map(|p| seconds(p.full.total_ns))),
        ..counter(
            "container_pressure_memory_stalled_seconds_total",
            "Time in which all tasks waited for memory, in seconds.",
        )
    },
];

/// cgroup v2 counts a container with its descendants, so both scopes are equal, as in cAdvisor.
fn failures(c: &ContainerSource<'_>) -> Values {
    let memory = &c.usage.memory;
    let kinds = [("pgfault", memory.page_faults), ("pgmajfault", memory.major_page_faults)];
    let scoped = |(kind, count): (&str, u64)| {
        ["container", "hierarchy"].map(|scope| (vec![kind.to_owned(), scope.to_owned()], count.into()))
    };
    kinds.into_iter().flat_map(scoped).collect()
}
