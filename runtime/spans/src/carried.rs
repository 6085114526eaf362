//! The current spans of some work, carried into another task.
//!
//! A task is in two spans at once: one of the log, and one of the call's steps. A subscriber's layer finds
//! either of them only if the task has entered both: `tracing-subscriber` looks at the entered spans and not
//! at their parents.

use std::sync::{Arc, Mutex, PoisonError};

use tracing::Span;
use tracing::instrument::Instrument;

tokio::task_local! {
    static LOG: Log;
}

/// A span of the log with its recorded values. Each value of a field appears in all later lines, beside the
/// earlier ones.
#[derive(Clone, Debug)]
struct Log {
    span: Span,
    recorded: Arc<Mutex<Vec<(&'static str, String)>>>,
}

impl Log {
    /// Outside of all spans.
    fn none() -> Log {
        Log { span: Span::none(), recorded: Arc::default() }
    }

    fn here() -> Log {
        LOG.try_with(Log::clone).unwrap_or_else(|_| Log::none())
    }

    fn around<T>(self, work: impl Future<Output = T>) -> impl Future<Output = T> {
        let span = self.span.clone();
        LOG.scope(self, work).instrument(span)
    }
}

/// Records a value in the current span of the log, if it is not there yet. The span was made with the field.
pub fn record_in_log(field: &'static str, value: &str) {
    let Log { span, recorded } = Log::here();
    let mut recorded = recorded.lock().unwrap_or_else(PoisonError::into_inner);
    if !recorded.iter().any(|(one, known)| *one == field && known == value) {
        recorded.push((field, value.to_owned()));
        span.record(field, value);
    }
}

/// Runs work with its log lines in this span.
pub fn logged<T>(span: Span, work: impl Future<Output = T>) -> impl Future<Output = T> {
    Log { span, recorded: Arc::default() }.around(work)
}

/// The spans at the point of creation.
#[derive(Clone, Debug)]
pub struct Carried {
    log: Log,
    step: Span,
}

impl Carried {
    /// The spans of the work here.
    #[must_use]
    pub fn here() -> Carried {
        Carried { log: Log::here(), step: Span::current() }
    }

    /// Does work in these spans.
    pub fn around<T>(self, work: impl Future<Output = T>) -> impl Future<Output = T> {
        self.log.around(work.instrument(self.step))
    }
}

#[cfg(test)]
mod tests {
    use tracing::span::{Id, Record};
    use tracing::{Event, Subscriber, error_span, field, info};
    use tracing_subscriber::Layer;
    use tracing_subscriber::filter::filter_fn;
    use tracing_subscriber::layer::{Context, SubscriberExt};
    use tracing_subscriber::registry::LookupSpan;

    use super::*;
    use crate::tests::ONE_SUBSCRIBER;
    use crate::{is_of_calls, span};

    /// Notes for each line the name of the span that its layer finds.
    #[derive(Clone, Default)]
    struct Found(Arc<Mutex<Vec<String>>>);

    impl<S: Subscriber + for<'span> LookupSpan<'span>> Layer<S> for Found {
        fn on_event(&self, event: &Event<'_>, context: Context<'_, S>) {
            let span = context.event_span(event).map_or("none", |span| span.name());
            self.0.lock().unwrap().push(span.to_owned());
        }
    }

    #[tokio::test]
    async fn another_task_is_in_both_spans_of_the_call() {
        let _one = ONE_SUBSCRIBER.lock().await;
        let (log, calls) = (Found::default(), Found::default());
        let of_calls = filter_fn(|metadata| is_of_calls(metadata) || metadata.is_event());
        let of_log = filter_fn(|metadata| !is_of_calls(metadata));
        let subscriber = tracing_subscriber::registry()
            .with(log.clone().with_filter(of_log))
            .with(calls.clone().with_filter(of_calls));
        let _guard = tracing::subscriber::set_default(subscriber);
        let line = || info!("a line");
        let carried =
            logged(error_span!("cri"), async { async { Carried::here() }.instrument(span!("call")).await });
        let carried = carried.await;
        line();
        tokio::spawn(carried.clone().around(async move { line() })).await.unwrap();
        tokio::spawn(carried.around(async move { async { line() }.instrument(span!("step")).await }))
            .await
            .unwrap();
        assert_eq!(*log.0.lock().unwrap(), ["none", "cri", "cri"]);
        assert_eq!(*calls.0.lock().unwrap(), ["none", "call", "step"]);
    }

    /// Notes each value of a field.
    #[derive(Clone, Default)]
    struct Recorded(Arc<Mutex<Vec<String>>>);

    impl<S: Subscriber + for<'span> LookupSpan<'span>> Layer<S> for Recorded {
        fn on_record(&self, _: &Id, values: &Record<'_>, _: Context<'_, S>) {
            self.0.lock().unwrap().push(format!("{values:?}"));
        }
    }

    #[tokio::test]
    async fn an_id_is_recorded_once_wherever_it_is_found_out() {
        let _one = ONE_SUBSCRIBER.lock().await;
        let recorded = Recorded::default();
        let _guard = tracing::subscriber::set_default(tracing_subscriber::registry().with(recorded.clone()));
        record_in_log("pod", "of nobody");
        logged(error_span!("cri", pod = field::Empty, container = field::Empty), async {
            record_in_log("pod", "one");
            async { record_in_log("pod", "one") }.instrument(span!("step")).await;
            Carried::here().around(async { record_in_log("pod", "one") }).await;
            record_in_log("container", "one");
            record_in_log("pod", "other");
        })
        .await;
        let recorded = recorded.0.lock().unwrap();
        assert_eq!(recorded.len(), 3, "{recorded:?}");
        assert!(recorded[0].contains("one") && recorded[2].contains("other"), "{recorded:?}");
    }
}
