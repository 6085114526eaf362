//! The spans of the log's lines about a pod. A call's own span is made at the edge, with empty fields `pod`
//! and `container`. They are filled here once the ids are known. Work outside of a call has a span of its
//! own.
//!
//! The spans have the level of errors, so a line has its ids at any log level.

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

/// The span of a pod's driver outside of calls.
pub(crate) fn driver(pod_id: &str) -> Span {
    error_span!(parent: None, "driver", pod = pod_id, container = field::Empty)
}

/// The span of a container's watcher.
pub(crate) fn watcher(container_id: &str) -> Span {
    error_span!(parent: None, "watcher", container = container_id)
}
