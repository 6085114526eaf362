//! Metrics of CRI's calls, with their duration and code: our own calls at the gate, and those of another
//! runtime at the link to it.

use std::sync::LazyLock;
use std::time::Duration;

use prometheus::{HistogramVec, IntCounterVec, register_histogram_vec, register_int_counter_vec};
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

/// The calls of our own services.
const METHODS: [&str; 41] = [
    "Attach",
    "CheckpointContainer",
    "ContainerStats",
    "ContainerStatus",
    "CreateContainer",
    "Exec",
    "ExecSync",
    "GetContainerEvents",
    "ImageFsInfo",
    "ImageStatus",
    "ListContainerStats",
    "ListContainers",
    "ListImages",
    "ListMetricDescriptors",
    "ListPodSandbox",
    "ListPodSandboxMetrics",
    "ListPodSandboxStats",
    "PodSandboxStats",
    "PodSandboxStatus",
    "PortForward",
    "PullImage",
    "RemoveContainer",
    "RemoveImage",
    "RemovePodSandbox",
    "ReopenContainerLog",
    "RunPodSandbox",
    "RuntimeConfig",
    "StartContainer",
    "Status",
    "StopContainer",
    "StopPodSandbox",
    "StreamContainerStats",
    "StreamContainers",
    "StreamImages",
    "StreamPodSandboxMetrics",
    "StreamPodSandboxStats",
    "StreamPodSandboxes",
    "UpdateContainerResources",
    "UpdatePodSandboxResources",
    "UpdateRuntimeConfig",
    "Version",
];

static FAILED: LazyLock<IntCounterVec> = LazyLock::new(|| {
    register_int_counter_vec!(
        "podvisor_cri_request_failures_total",
        "CRI calls that failed for a reason that the caller cannot help, by method.",
        &["method"]
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

/// Counts a call answered by our own services.
pub(crate) fn answered(method: &'static str, code: Code, took: Duration) {
    OURS.with_label_values(&[method, &format!("{code:?}")]).observe(took.as_secs_f64());
    if is_for_the_node_to_mend(method, code) {
        FAILED.with_label_values(&[method]).inc();
    }
}

/// Registers the failures at zero. An alert on an increase needs the value before the first.
pub(crate) fn register() {
    for method in METHODS {
        FAILED.with_label_values(&[method]);
    }
}

/// Returns true if this code means a failure of the node, and not of the request. A slow command is its
/// caller's concern, and pulls are counted at their end.
fn is_for_the_node_to_mend(method: &str, code: Code) -> bool {
    match code {
        _ if method == "PullImage" => false,
        Code::ResourceExhausted | Code::Internal | Code::Unavailable | Code::DataLoss => true,
        Code::DeadlineExceeded => method != "ExecSync",
        _ => false,
    }
}

/// Counts a call answered by the upstream, or failed there. `path` is a path of our own table: those are few.
pub(crate) fn answered_upstream(path: &str, code: Code, took: Duration) {
    let method = path.rsplit_once('/').map_or(path, |(_, method)| method);
    UPSTREAM.with_label_values(&[method, &format!("{code:?}")]).observe(took.as_secs_f64());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_call_has_the_zero_of_its_failures() {
        let services = [include_str!("runtime_service.rs"), include_str!("image_service.rs")].concat();
        let passed = services.split("gate(").skip(1).filter_map(|call| call.split('"').nth(1));
        let mut passed: Vec<&str> = passed.collect();
        passed.sort_unstable();
        assert_eq!(passed, METHODS);
    }

    #[test]
    fn calls_that_fail_by_what_was_asked_are_no_failures_of_the_node() {
        for code in [Code::Ok, Code::NotFound, Code::InvalidArgument, Code::Unimplemented, Code::Unknown] {
            assert!(!is_for_the_node_to_mend("RunPodSandbox", code), "{code:?}");
        }
        assert!(is_for_the_node_to_mend("RunPodSandbox", Code::DeadlineExceeded));
        assert!(!is_for_the_node_to_mend("ExecSync", Code::DeadlineExceeded), "a probe that took too long");
        assert!(!is_for_the_node_to_mend("PullImage", Code::ResourceExhausted), "counted among the pulls");
    }

    #[test]
    fn a_failure_of_the_node_is_counted_by_its_method() {
        let method = "of this test";
        answered(method, Code::Ok, Duration::ZERO);
        answered(method, Code::Internal, Duration::ZERO);
        assert_eq!(FAILED.with_label_values(&[method]).get(), 1);
    }
}
