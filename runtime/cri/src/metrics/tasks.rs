//! Processes, their open files, and times of the container.

use super::metric::{Metric, gauge, one, seconds};

pub(super) const METRICS: &[Metric] = &[
    Metric {
        container: |c| one(c.usage.tasks.processes),
        ..gauge("container_processes", "Processes that run.")
    },
    Metric {
        container: |c| one(c.usage.tasks.threads),
        ..gauge("container_threads", "Threads that run, of all processes.")
    },
    Metric {
        container: |c| one(c.usage.tasks.threads_max),
        ..gauge("container_threads_max", "Most threads that may run; 0 for no limit.")
    },
    Metric {
        container: |c| one(c.usage.tasks.file_descriptors),
        ..gauge("container_file_descriptors", "Open file descriptors, of all processes.")
    },
    Metric {
        container: |c| one(c.usage.tasks.sockets),
        ..gauge("container_sockets", "Open sockets, of all processes.")
    },
    Metric {
        labels: &["ulimit"],
        container: |c| {
            let limit = c.usage.tasks.open_files_max;
            limit.map(|limit| vec![(vec!["max_open_files".to_owned()], limit.into())]).unwrap_or_default()
        },
        ..gauge("container_ulimits_soft", "Soft limits of the first process.")
    },
    Metric {
        container: |c| one(whole(c.guest.at_ns)),
        pod: |p| one(whole(p.usage.host.at_ns)),
        ..gauge("container_last_seen", "When the figures were taken, in seconds since the epoch.")
    },
    Metric {
        container: |c| one(whole(c.view.started_at_ns)),
        pod: |p| one(whole(p.pod.created_at_ns)),
        ..gauge("container_start_time_seconds", "When it started, in seconds since the epoch.")
    },
];

fn whole(at_ns: i64) -> u64 {
    seconds(u64::try_from(at_ns).unwrap_or(0)).whole()
}
