//! The steps of a call, as spans of their own kind: each says the step's name, how long it took, and why it
//! failed.
//!
//! This crate makes spans and does not know their receivers. `runtime-traces` sends them to a collector;
//! without a receiver no span is made. Lines of the log have other spans, never these.
//!
//! No function here that runs work is an `async fn`: its future would hold the argument twice, once as passed
//! and once as awaited. These functions are nested in all of a pod's work.

#![forbid(unsafe_code)]

mod carried;

pub use carried::{Carried, logged, record_in_log};

use std::error::Error;
use std::fmt;

use futures::TryFutureExt;
use tracing::instrument::Instrument;
use tracing::{Metadata, Span};

#[doc(hidden)]
pub use tracing as __tracing;

/// The target of all these spans. It distinguishes them from those of the log.
pub const TARGET: &str = "podvisor::call";

/// Whether this span belongs to a call or to a step of one.
#[must_use]
pub fn is_of_calls(metadata: &Metadata<'_>) -> bool {
    metadata.is_span() && metadata.target() == TARGET
}

/// Makes the span of a step below the current one: a name, then fields as in `tracing`'s macros. Collectors
/// group by the name, so the set of names is small; ids go into fields.
#[macro_export]
macro_rules! span {
    ($name:literal $(, $($fields:tt)+)?) => {
        $crate::__tracing::info_span!(
            target: $crate::TARGET,
            $name,
            otel.status_description = $crate::__tracing::field::Empty
            $(, $($fields)+)?
        )
    };
}

/// A text chosen by a guest, as the last source of an error. It may quote a container's command. Callers and
/// the log get it, and spans do not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GuestText(pub String);

impl fmt::Display for GuestText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Error for GuestText {}

/// Runs a step in its span. The span says why the step failed.
///
/// # Errors
/// The work's own.
pub fn step<T, E: Error + 'static>(
    span: Span,
    work: impl Future<Output = Result<T, E>>,
) -> impl Future<Output = Result<T, E>> {
    work.instrument(span.clone()).inspect_err(move |error| failed(&span, error))
}

/// Runs infallible work in the span of its step.
pub fn always<T>(span: Span, work: impl Future<Output = T>) -> impl Future<Output = T> {
    work.instrument(span)
}

/// Records in a step's span why the step failed, except for a guest's own text.
pub fn failed(span: &Span, error: &(dyn Error + 'static)) {
    if span.is_disabled() {
        return;
    }
    let mut texts = Vec::new();
    let mut next = Some(error);
    while let Some(error) = next.filter(|error| !error.is::<GuestText>()) {
        texts.push(error.to_string());
        next = error.source();
    }
    span.record("otel.status_description", texts.join(": "));
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use tracing::field::{Field, Visit};
    use tracing::span::{Attributes, Id, Record};
    use tracing_subscriber::Layer;
    use tracing_subscriber::layer::{Context, SubscriberExt};

    use super::*;

    /// Locked by each test with a subscriber: `tracing` caches a subscriber's interest in a span for the
    /// whole process.
    pub(crate) static ONE_SUBSCRIBER: tokio::sync::Mutex<()> = tokio::sync::Mutex::const_new(());

    #[derive(Debug)]
    struct Because(Option<Box<dyn Error>>, &'static str);

    impl fmt::Display for Because {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str(self.1)
        }
    }

    impl Error for Because {
        fn source(&self) -> Option<&(dyn Error + 'static)> {
            self.0.as_deref()
        }
    }

    /// Notes names of spans and the values of their fields.
    #[derive(Clone, Default)]
    struct Notes(Arc<Mutex<Vec<String>>>);

    impl Visit for Notes {
        fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
            self.0.lock().unwrap().push(format!("{field}={value:?}"));
        }
    }

    impl<S: tracing::Subscriber> Layer<S> for Notes {
        fn on_new_span(&self, attributes: &Attributes<'_>, _: &Id, _: Context<'_, S>) {
            assert!(is_of_calls(attributes.metadata()));
            self.0.lock().unwrap().push(attributes.metadata().name().to_owned());
            attributes.record(&mut self.clone());
        }

        fn on_record(&self, _: &Id, values: &Record<'_>, _: Context<'_, S>) {
            values.record(&mut self.clone());
        }
    }

    #[tokio::test]
    async fn a_step_has_its_fields_and_the_whole_chain_of_its_failure() {
        let _one = ONE_SUBSCRIBER.lock().await;
        let notes = Notes::default();
        let _guard = tracing::subscriber::set_default(tracing_subscriber::registry().with(notes.clone()));
        let error = Because(Some(Box::new(Because(None, "no space left"))), "writing");
        let outcome: Result<(), _> = step(span!("record", "pod.id" = "a1"), async { Err(error) }).await;
        assert_eq!(outcome.unwrap_err().1, "writing");
        step(span!("boot"), async { Ok::<_, Because>(()) }).await.unwrap();
        let expected =
            ["record", "pod.id=\"a1\"", "otel.status_description=\"writing: no space left\"", "boot"];
        assert_eq!(*notes.0.lock().unwrap(), expected);
    }

    #[tokio::test]
    async fn a_failure_does_not_quote_a_guest() {
        let _one = ONE_SUBSCRIBER.lock().await;
        let notes = Notes::default();
        let _guard = tracing::subscriber::set_default(tracing_subscriber::registry().with(notes.clone()));
        let text = GuestText("no executable \"app --token=x\"".to_owned());
        let refused = Because(Some(Box::new(text)), "the agent refused Exec");
        let error = Because(Some(Box::new(refused)), "starting the command");
        let _: Result<(), _> = step(span!("exec"), async { Err(error) }).await;
        let expected = ["exec", "otel.status_description=\"starting the command: the agent refused Exec\""];
        assert_eq!(*notes.0.lock().unwrap(), expected);
    }

    #[test]
    fn where_nobody_takes_spans_none_is_made() {
        let _one = ONE_SUBSCRIBER.blocking_lock();
        let log = tracing_subscriber::filter::filter_fn(|metadata| !is_of_calls(metadata));
        let log = tracing_subscriber::fmt::layer().with_writer(std::io::sink).with_filter(log);
        let _guard = tracing::subscriber::set_default(tracing_subscriber::registry().with(log));
        assert!(span!("record", pod = "a1").is_disabled());
        failed(&span!("record"), &Because(None, "writing"));
    }

    #[test]
    fn work_has_room_once_in_the_future_around_it() {
        const WORK: usize = 4096;
        let work = async {
            let room = [0_u8; WORK];
            std::future::ready(()).await;
            std::hint::black_box(&room);
            Ok::<_, Because>(())
        };
        let within = always(Span::none(), step(Span::none(), work));
        let around = Carried::here().around(logged(Span::none(), within));
        assert!(size_of_val(&around) < WORK * 3 / 2, "{}", size_of_val(&around));
    }
}
