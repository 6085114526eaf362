//! The spans that the log's lines about a pod are in. A call's own span is made at the edge, with empty fields `pod` and
//! `container`, which are filled here once the ids are known; work that no call waits for has a span of its own.
//!
//! The spans are of the level of errors, so that a line has its ids at whatever level the log is.

use runtime_spans::record_in_log;
use tracing::{Span, error_span, field};

/// Puts a pod's id into the span of the call.
pub(crate) fn of_pod(pod_id: &str) {
    record_in_log("pod", pod_id);
}

/// Puts a container's id into the span of the call.
pub(crate) fn of_container(container_id: &str) {
    record_in_log("container", container_id);
}

/// The span of what a pod's driver does unasked.
pub(crate) fn driver(pod_id: &str) -> Span {
    error_span!(parent: None, "driver", pod = pod_id, container = field::Empty)
}

/// The span of what watches a container.
pub(crate) fn watcher(container_id: &str) -> Span {
    error_span!(parent: None, "watcher", container = container_id)
}
