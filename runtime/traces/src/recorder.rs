//! Spans kept in memory, for tests: the layer and its settings are those of the daemon, the collector is a
//! list.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, SystemTime};

use opentelemetry::Context;
use opentelemetry::trace::{SpanKind, Status};
use opentelemetry_sdk::error::OTelSdkResult;
use opentelemetry_sdk::trace::{SdkTracerProvider, Span, SpanData, SpanProcessor};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id};
use tracing::subscriber::{DefaultGuard, NoSubscriber};
use tracing::{Dispatch, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::layer::{self, SubscriberExt};

use crate::sampler;
use crate::traces;

/// A recorded span. Ids are in hexadecimal.
#[derive(Clone, Debug)]
pub struct RecordedSpan {
    /// Name.
    pub name: String,
    /// Id of the trace.
    pub trace: String,
    /// Id.
    pub id: String,
    /// Id of the parent; zeros for a root.
    pub parent: String,
    /// Whether it is the server's side of a call.
    pub is_call: bool,
    /// Beginning.
    pub start: SystemTime,
    /// End.
    pub end: SystemTime,
    /// Attributes as texts.
    pub attributes: BTreeMap<String, String>,
    /// Why it failed, if it did.
    pub failure: Option<String>,
}

#[derive(Debug, Default)]
struct Lists {
    ended: Vec<RecordedSpan>,
    /// Names of open spans, by the ids of `tracing`. For a collector, a span without children begins only
    /// when it ends.
    open: BTreeMap<u64, String>,
}

/// The spans of one thread.
#[derive(Clone, Debug, Default)]
pub struct Recorder(Arc<Mutex<Lists>>);

impl Recorder {
    /// Records all spans of this thread until the guard is dropped: calls without a parent, and everything
    /// below a parent.
    #[must_use]
    pub fn begin() -> (Recorder, DefaultGuard) {
        keep_another();
        let recorder = Recorder::default();
        let provider = SdkTracerProvider::builder()
            .with_span_processor(recorder.clone())
            .with_sampler(sampler::of_calls(1.0))
            .build();
        let spans =
            tracing_subscriber::registry().with(traces::layer(&provider)).with(Going(recorder.clone()));
        let guard = tracing::subscriber::set_default(spans);
        (recorder, guard)
    }

    /// The ended spans, in the order of their ends.
    #[must_use]
    pub fn spans(&self) -> Vec<RecordedSpan> {
        self.lists().ended.clone()
    }

    /// The one span of this name.
    ///
    /// # Panics
    /// There is none, or there are several.
    #[must_use]
    pub fn span(&self, name: &str) -> RecordedSpan {
        let spans = self.spans();
        let mut found = spans.iter().filter(|span| span.name == name);
        match (found.next(), found.next()) {
            (Some(span), None) => span.clone(),
            (first, _) => {
                let number = if first.is_some() { "several" } else { "none" };
                let names: Vec<_> = spans.iter().map(|span| &span.name).collect();
                panic!("{number} of {name:?} in {names:?}")
            }
        }
    }

    /// Names of the ended direct children of this span.
    #[must_use]
    pub fn children(&self, parent: &RecordedSpan) -> Vec<String> {
        let spans = self.spans();
        spans.into_iter().filter(|span| span.parent == parent.id).map(|span| span.name).collect()
    }

    /// Names of the open spans, in no particular order.
    #[must_use]
    pub fn open(&self) -> Vec<String> {
        self.lists().open.values().cloned().collect()
    }

    fn lists(&self) -> MutexGuard<'_, Lists> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl SpanProcessor for Recorder {
    fn on_start(&self, _: &mut Span, _: &Context) {}

    fn on_end(&self, span: SpanData) {
        let failure = match span.status {
            Status::Error { description } => Some(description.into_owned()),
            Status::Unset | Status::Ok => None,
        };
        let attributes =
            span.attributes.into_iter().map(|one| (one.key.to_string(), one.value.to_string())).collect();
        let recorded = RecordedSpan {
            name: span.name.into_owned(),
            trace: span.span_context.trace_id().to_string(),
            id: span.span_context.span_id().to_string(),
            parent: span.parent_span_id.to_string(),
            is_call: span.span_kind == SpanKind::Server,
            start: span.start_time,
            end: span.end_time,
            attributes,
            failure,
        };
        self.lists().ended.push(recorded);
    }

    fn force_flush(&self) -> OTelSdkResult {
        Ok(())
    }

    fn shutdown_with_timeout(&self, _: Duration) -> OTelSdkResult {
        Ok(())
    }
}

/// Keeps a second subscriber for the lifetime of the process. With only one, `tracing` asks the subscriber of
/// the first thread at a span and caches its answer for all threads. With tests side by side that thread may
/// have no subscriber.
pub(crate) fn keep_another() {
    static ANOTHER: OnceLock<Dispatch> = OnceLock::new();
    ANOTHER.get_or_init(|| Dispatch::new(NoSubscriber::default()));
}

/// Keeps track of open spans.
struct Going(Recorder);

impl<S: Subscriber> Layer<S> for Going {
    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, _: layer::Context<'_, S>) {
        if runtime_spans::is_of_calls(attributes.metadata()) {
            let mut name = Name(attributes.metadata().name().to_owned());
            attributes.record(&mut name);
            self.0.lists().open.insert(id.into_u64(), name.0);
        }
    }

    fn on_close(&self, id: Id, _: layer::Context<'_, S>) {
        self.0.lists().open.remove(&id.into_u64());
    }
}

/// A span's name, possibly from a field.
struct Name(String);

impl Visit for Name {
    fn record_str(&mut self, field: &Field, value: &str) {
        if field.name() == "otel.name" {
            value.clone_into(&mut self.0);
        }
    }

    fn record_debug(&mut self, _: &Field, _: &dyn std::fmt::Debug) {}
}
