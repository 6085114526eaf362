//! The context of a trace, from a call's headers to its span, and from a span to the headers of an outgoing
//! call. A disabled span is left alone, and so are the headers then.

use opentelemetry::Context;
use opentelemetry::trace::TraceContextExt;
use tonic::codegen::http::{HeaderMap, HeaderValue};
use tracing::Span;
use tracing_opentelemetry::OpenTelemetrySpanExt;

use crate::context::{self, TRACEPARENT, TRACESTATE};

/// Makes the caller's span the parent of `span`, a new one. Without a readable parent in the headers, the
/// span is a root.
pub fn adopt(span: &Span, headers: &HeaderMap) {
    if span.is_disabled() {
        return;
    }
    // A duplicate header is ignored: its origin is unclear.
    let mut parents = headers.get_all(TRACEPARENT).iter();
    let (Some(parent), None) = (parents.next().and_then(|value| value.to_str().ok()), parents.next()) else {
        return;
    };
    let states: Vec<&str> =
        headers.get_all(TRACESTATE).iter().filter_map(|value| value.to_str().ok()).collect();
    if let Some(parent) = context::parse(parent, &states.join(",")) {
        // Only a span with children refuses.
        let _ = span.set_parent(Context::new().with_remote_span_context(parent));
    }
}

/// Names `span` as the parent in an outgoing call's headers, replacing any other.
pub fn inject(span: &Span, headers: &mut HeaderMap) {
    if span.is_disabled() {
        return;
    }
    let current = span.context();
    let current = current.span();
    let current = current.span_context();
    if !current.is_valid() {
        return;
    }
    let (parent, state) = context::write(current);
    for (name, value) in [(TRACEPARENT, parent), (TRACESTATE, state)] {
        headers.remove(name);
        if let Some(value) = HeaderValue::try_from(value).ok().filter(|value| !value.is_empty()) {
            headers.insert(name, value);
        }
    }
}
