//! Metrics of the bytes of containers' output.

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

/// Registers the counters of all logs at zero. An alert on an increase needs the value before the first.
pub fn register_counters() {
    LazyLock::force(&WRITTEN);
    LazyLock::force(&DROPPED);
}

/// Counts one write: bytes in the file, and lost bytes.
pub(crate) fn wrote(kept: usize, dropped: usize) {
    WRITTEN.inc_by(kept as u64);
    DROPPED.inc_by(dropped as u64);
}
