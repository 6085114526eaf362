//! Measures the phases of a pod's start. Some of them run in parallel. Each is a step of the call in its
//! trace, too.

use std::error::Error;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use runtime_spans::{span, step};

use crate::view::Phase;

/// A monotonic clock, started when the request came.
#[derive(Debug)]
pub(crate) struct Stopwatch {
    origin: Instant,
    phases: Mutex<Vec<Phase>>,
}

impl Stopwatch {
    pub(crate) fn start() -> Self {
        Stopwatch { origin: Instant::now(), phases: Mutex::new(Vec::new()) }
    }

    /// Runs `work` as the phase `name`.
    pub(crate) async fn time<T, E: Error + 'static>(
        &self,
        name: &'static str,
        work: impl Future<Output = Result<T, E>>,
    ) -> Result<T, E> {
        let start = self.origin.elapsed();
        let outcome = step(span!("phase", otel.name = name), work).await;
        self.note(name, start, self.origin.elapsed().saturating_sub(start));
        outcome
    }

    /// The phases so far, in the order of beginning, and the whole as "total".
    pub(crate) fn phases(&self) -> Vec<Phase> {
        let mut phases = self.lock().clone();
        phases.sort_by_key(|phase| phase.start);
        phases.push(Phase {
            name: "total".to_owned(),
            start: Duration::ZERO,
            duration: self.origin.elapsed(),
        });
        phases
    }

    fn note(&self, name: &str, start: Duration, duration: Duration) {
        self.lock().push(Phase { name: name.to_owned(), start, duration });
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<Phase>> {
        self.phases.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}
