//! The context of a trace from a call's headers to its span, and from a span to the headers of a call that goes on. A span that
//! nobody takes is left alone, and so are the headers then.

use opentelemetry::Context;
use opentelemetry::trace::TraceContextExt;
use tonic::codegen::http::{HeaderMap, HeaderValue};
use tracing::Span;
use tracing_opentelemetry::OpenTelemetrySpanExt;

use crate::context::{self, TRACEPARENT, TRACESTATE};

/// Makes the caller's span the parent of `span`, which is new. Headers without a readable parent leave the span a root.
pub fn adopt(span: &Span, headers: &HeaderMap) {
    if span.is_disabled() {
        return;
    }
    // The header of which there are two is as good as none: nobody knows who added which.
    let mut parents = headers.get_all(TRACEPARENT).iter();
    let (Some(parent), None) = (parents.next().and_then(|value| value.to_str().ok()), parents.next()) else {
        return;
    };
    let states: Vec<&str> =
        headers.get_all(TRACESTATE).iter().filter_map(|value| value.to_str().ok()).collect();
    if let Some(parent) = context::parse(parent, &states.join(",")) {
        // Only a span that has children already refuses.
        let _ = span.set_parent(Context::new().with_remote_span_context(parent));
    }
}

/// Names `span` as the parent of the call that has these headers, in the place of whoever is named there.
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
