//! Bytes of output, counted for those who watch the node.

use std::sync::LazyLock;

use prometheus::{IntCounter, register_int_counter};

const ONCE: &str = "each name is registered in one place";

static WRITTEN: LazyLock<IntCounter> = LazyLock::new(|| {
    register_int_counter!("podvisor_log_bytes_total", "Bytes written into containers' log files.")
        .expect(ONCE)
});

static DROPPED: LazyLock<IntCounter> = LazyLock::new(|| {
    register_int_counter!(
        "podvisor_log_dropped_bytes_total",
        "Bytes of containers' output that were lost because a log file could not be written."
    )
    .expect(ONCE)
});

/// Makes the counters of all logs known with their zeros: an alert on an increase needs the value before the first.
pub fn register_counters() {
    LazyLock::force(&WRITTEN);
    LazyLock::force(&DROPPED);
}

/// Counts one write: so many bytes are in the file, and so many are lost.
pub(crate) fn wrote(kept: usize, dropped: usize) {
    WRITTEN.inc_by(kept as u64);
    DROPPED.inc_by(dropped as u64);
}
