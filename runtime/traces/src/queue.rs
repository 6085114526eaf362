//! Ended spans on their way to the sending task. Never waits: if the queue is full, spans are dropped and
//! counted.

use std::time::Duration;

use opentelemetry::trace::Status;
use opentelemetry::{Context, StringValue, Value};
use opentelemetry_sdk::error::OTelSdkResult;
use opentelemetry_sdk::trace::{Span, SpanData, SpanProcessor};
use tokio::sync::mpsc;

use crate::counters::{Reason, dropped};

/// Spans waiting for the collector: some fifty starts of pods with all their steps, or a minute without a
/// collector on a busy node. With the limits below they take at most some 20 MiB, and typically 2 MiB.
const SPANS_MAX: usize = 2048;

/// Longest text of an attribute, in bytes. Names of pods and images are shorter; a caller's own text may not
/// be.
const TEXT_BYTES_MAX: usize = 512;

/// Longest description of a failure, in bytes. The log has the full text.
const FAILURE_BYTES_MAX: usize = 1024;

/// The sending end of the queue.
#[derive(Debug)]
pub(crate) struct Queue(mpsc::Sender<SpanData>);

/// A queue, and its other end.
pub(crate) fn queue() -> (Queue, mpsc::Receiver<SpanData>) {
    let (sender, receiver) = mpsc::channel(SPANS_MAX);
    (Queue(sender), receiver)
}

impl SpanProcessor for Queue {
    fn on_start(&self, _: &mut Span, _: &Context) {}

    fn on_end(&self, mut span: SpanData) {
        if !span.span_context.is_sampled() {
            return;
        }
        bound(&mut span);
        if self.0.try_send(span).is_err() {
            dropped(Reason::Queue, 1);
        }
    }

    /// `Exporting::finish` asks the sending task instead.
    fn force_flush(&self) -> OTelSdkResult {
        Ok(())
    }

    fn shutdown_with_timeout(&self, _: Duration) -> OTelSdkResult {
        Ok(())
    }
}

/// Truncates texts from callers.
fn bound(span: &mut SpanData) {
    for attribute in &mut span.attributes {
        if let Value::String(text) = &mut attribute.value
            && text.as_str().len() > TEXT_BYTES_MAX
        {
            *text = StringValue::from(cut(text.as_str(), TEXT_BYTES_MAX));
        }
    }
    if let Status::Error { description } = &mut span.status
        && description.len() > FAILURE_BYTES_MAX
    {
        *description = cut(description, FAILURE_BYTES_MAX).into();
    }
}

/// The beginning of a text, without half a character at its end.
fn cut(text: &str, bytes_max: usize) -> String {
    text[..text.floor_char_boundary(bytes_max)].to_owned()
}

#[cfg(test)]
pub(crate) mod tests {
    use std::time::SystemTime;

    use opentelemetry::trace::{SpanContext, SpanId, SpanKind, TraceFlags, TraceId, TraceState};
    use opentelemetry::{InstrumentationScope, KeyValue};
    use opentelemetry_sdk::trace::{SpanEvents, SpanLinks};

    use super::*;

    /// A span of this name.
    pub(crate) fn span(name: &'static str, flags: TraceFlags) -> SpanData {
        let (trace_id, state) = (TraceId::from(1), TraceState::default());
        SpanData {
            span_context: SpanContext::new(trace_id, SpanId::from(2), flags, false, state),
            parent_span_id: SpanId::INVALID,
            parent_span_is_remote: false,
            span_kind: SpanKind::Internal,
            name: name.into(),
            start_time: SystemTime::UNIX_EPOCH,
            end_time: SystemTime::UNIX_EPOCH,
            attributes: Vec::new(),
            dropped_attributes_count: 0,
            events: SpanEvents::default(),
            links: SpanLinks::default(),
            status: Status::Unset,
            instrumentation_scope: InstrumentationScope::default(),
        }
    }

    #[test]
    fn what_does_not_fit_is_dropped_and_the_first_ones_stay() {
        let (queue, mut spans) = queue();
        queue.on_end(span("first", TraceFlags::SAMPLED));
        for _ in 0..2 * SPANS_MAX {
            queue.on_end(span("later", TraceFlags::SAMPLED));
        }
        assert_eq!(spans.len(), SPANS_MAX);
        assert_eq!(spans.try_recv().unwrap().name, "first");
    }

    #[test]
    fn what_is_not_sampled_takes_no_place() {
        let (queue, spans) = queue();
        queue.on_end(span("x", TraceFlags::NOT_SAMPLED));
        assert!(spans.is_empty());
    }

    #[test]
    fn long_texts_are_cut_between_characters() {
        let (queue, mut spans) = queue();
        let mut long = span("x", TraceFlags::SAMPLED);
        long.attributes = vec![KeyValue::new("name", "é".repeat(TEXT_BYTES_MAX)), KeyValue::new("count", 7)];
        long.status = Status::error(format!("a{}", "é".repeat(FAILURE_BYTES_MAX)));
        queue.on_end(long);
        let cut = spans.try_recv().unwrap();
        assert_eq!(cut.attributes[0].value.as_str(), "é".repeat(TEXT_BYTES_MAX / 2));
        assert_eq!(cut.attributes[1].value, Value::I64(7));
        let Status::Error { description } = cut.status else { panic!("{:?}", cut.status) };
        assert_eq!(description.len(), FAILURE_BYTES_MAX - 1);
    }
}
