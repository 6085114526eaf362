//! How long CRI's calls take and how they end, counted for those who watch the node: our own calls at the gate, and those that
//! another runtime has answered at the link to it.

use std::sync::LazyLock;
use std::time::Duration;

use prometheus::{HistogramVec, register_histogram_vec};
use tonic::Code;

const ONCE: &str = "each name is registered in one place";

/// From an answer out of memory to a pull, in seconds.
const SECONDS: &[f64] =
    &[0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 120.0];

const LABELS: [&str; 2] = ["method", "code"];

static OURS: LazyLock<HistogramVec> = LazyLock::new(|| {
    register_histogram_vec!(
        "podvisor_cri_request_duration_seconds",
        "How long CRI calls took, by method and gRPC code; calls that end in a stream are counted when it opens.",
        &LABELS,
        SECONDS.to_vec()
    )
    .expect(ONCE)
});

static UPSTREAM: LazyLock<HistogramVec> = LazyLock::new(|| {
    register_histogram_vec!(
        "podvisor_upstream_request_duration_seconds",
        "How long the upstream runtime took for the calls that were handed to it, by method and gRPC code.",
        &LABELS,
        SECONDS.to_vec()
    )
    .expect(ONCE)
});

/// Counts a call that our own services have answered.
pub(crate) fn answered(method: &'static str, code: Code, took: Duration) {
    OURS.with_label_values(&[method, &format!("{code:?}")]).observe(took.as_secs_f64());
}

/// Counts a call that the upstream has answered, or has failed to answer. `path` is a path of our own table: those are few.
pub(crate) fn answered_upstream(path: &str, code: Code, took: Duration) {
    let method = path.rsplit_once('/').map_or(path, |(_, method)| method);
    UPSTREAM.with_label_values(&[method, &format!("{code:?}")]).observe(took.as_secs_f64());
}
