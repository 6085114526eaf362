//! Backoff: pauses growing from one attempt to the next. Pure.

use std::time::Duration;

/// The pause before the next attempt.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Backoff {
    first: Duration,
    max: Duration,
    next: Duration,
}

impl Backoff {
    /// Creates a backoff from `first` on, doubled each time up to `max`.
    pub(crate) fn new(first: Duration, max: Duration) -> Backoff {
        Backoff { first, max, next: first }
    }

    /// Returns the pause before the next attempt.
    pub(crate) fn pause(&mut self) -> Duration {
        let pause = self.next;
        self.next = pause.saturating_mul(2).min(self.max);
        pause
    }

    /// Starts again from the first pause, after a success.
    pub(crate) fn reset(&mut self) {
        self.next = self.first;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_up_to_the_longest_and_begin_anew_after_a_success() {
        let mut backoff = Backoff::new(Duration::from_secs(1), Duration::from_secs(5));
        let pauses = [(); 5].map(|()| backoff.pause().as_secs());
        assert_eq!(pauses, [1, 2, 4, 5, 5]);
        backoff.reset();
        assert_eq!(backoff.pause(), Duration::from_secs(1));
    }
}
