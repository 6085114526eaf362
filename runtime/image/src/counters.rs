//! Metrics of pulls.

use std::sync::LazyLock;

use prometheus::{IntCounter, IntCounterVec, register_int_counter, register_int_counter_vec};

const ONCE: &str = "each name is registered in one place";

static PULLS: LazyLock<IntCounterVec> = LazyLock::new(|| {
    register_int_counter_vec!(
        "podvisor_image_pulls_total",
        "Pulls of images that have ended, by outcome; callers that wait for one pull share it.",
        &["outcome"]
    )
    .expect(ONCE)
});

static BYTES: LazyLock<IntCounter> = LazyLock::new(|| {
    register_int_counter!(
        "podvisor_image_pull_bytes_total",
        "Bytes of blobs that registries have sent and that are on disk."
    )
    .expect(ONCE)
});

/// Registers the counters with zeros: an alert on an increase needs the value before the first event.
pub(crate) fn register() {
    for succeeded in [true, false] {
        PULLS.with_label_values(&[outcome(succeeded)]);
    }
    LazyLock::force(&BYTES);
}

/// Counts the end of a pull.
pub(crate) fn pulled(succeeded: bool) {
    PULLS.with_label_values(&[outcome(succeeded)]).inc();
}

fn outcome(succeeded: bool) -> &'static str {
    if succeeded { "ok" } else { "error" }
}

/// Counts bytes of a blob.
pub(crate) fn received(bytes: usize) {
    BYTES.inc_by(bytes as u64);
}
