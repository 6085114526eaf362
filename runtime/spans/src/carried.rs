//! The spans that work is in, taken along into another task.
//!
//! A task is in two spans at once: one of the log, and one of the call's steps. A subscriber's layer that wants one of them finds it only
//! where the task has entered both, since `tracing-subscriber` looks at the spans entered and not at their parents.

use tracing::Span;
use tracing::instrument::Instrument;

tokio::task_local! {
    static LOG: Span;
}

/// The span of the log that this work is in; none outside of all.
#[must_use]
pub fn of_log() -> Span {
    LOG.try_with(Span::clone).unwrap_or_else(|_| Span::none())
}

/// Does work whose lines of the log are in this span.
pub async fn logged<T>(span: Span, work: impl Future<Output = T>) -> T {
    LOG.scope(span.clone(), work).instrument(span).await
}

/// The spans of the work that made this.
#[derive(Clone, Debug)]
pub struct Carried {
    log: Span,
    step: Span,
}

impl Carried {
    /// The spans of the work here.
    #[must_use]
    pub fn here() -> Carried {
        Carried { log: of_log(), step: Span::current() }
    }

    /// Does work in these spans.
    pub async fn around<T>(self, work: impl Future<Output = T>) -> T {
        logged(self.log, work.instrument(self.step)).await
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use tracing::{Event, Subscriber, error_span, field, info};
    use tracing_subscriber::Layer;
    use tracing_subscriber::filter::filter_fn;
    use tracing_subscriber::layer::{Context, SubscriberExt};
    use tracing_subscriber::registry::LookupSpan;

    use super::*;
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

    #[tokio::test]
    async fn the_span_of_the_log_is_found_within_a_step() {
        let _guard = tracing::subscriber::set_default(tracing_subscriber::registry());
        let span = error_span!("cri", pod = field::Empty);
        let found = logged(span.clone(), async { of_log() }.instrument(span!("step"))).await;
        assert_eq!(found.id(), span.id());
        assert!(of_log().is_none());
    }
}
