//! CPU time per second, from two readings of a counter.

use std::time::Duration;

/// Readings closer together make no rate: the difference between them may be one tick of the clock.
const WINDOW_MIN: Duration = Duration::from_millis(500);

/// One counter's last reading, and the rate up to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Rate {
    at: Duration,
    counter: u64,
    per_second: Option<u64>,
}

impl Rate {
    /// The first reading, `at` some time on a monotonic clock.
    pub(super) fn new(at: Duration, counter: u64) -> Rate {
        Rate { at, counter, per_second: None }
    }

    /// Takes a later reading. A reading that comes too soon changes nothing; after a counter went back, the
    /// rate starts again.
    pub(super) fn update(&mut self, at: Duration, counter: u64) {
        let window = at.saturating_sub(self.at);
        if window < WINDOW_MIN {
            return;
        }
        if let Some(counted) = counter.checked_sub(self.counter) {
            let per_second = u128::from(counted) * 1_000_000_000 / window.as_nanos().max(1);
            self.per_second = Some(u64::try_from(per_second).unwrap_or(u64::MAX));
        }
        (self.at, self.counter) = (at, counter);
    }

    /// `None` before the second reading.
    pub(super) fn per_second(&self) -> Option<u64> {
        self.per_second
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn two_readings_make_a_rate() {
        let mut rate = Rate::new(SECOND, 100);
        assert_eq!(rate.per_second(), None);
        rate.update(SECOND * 3, 1_000_000_100);
        assert_eq!(rate.per_second(), Some(500_000_000));
    }

    #[test]
    fn a_reading_that_comes_too_soon_is_part_of_the_next() {
        let mut rate = Rate::new(SECOND, 0);
        rate.update(SECOND * 2, 1000);
        rate.update(SECOND * 2 + WINDOW_MIN / 2, 9000);
        assert_eq!(rate.per_second(), Some(1000));
        rate.update(SECOND * 4, 9000);
        assert_eq!(rate.per_second(), Some(4000));
    }

    #[test]
    fn a_counter_that_went_back_begins_anew() {
        let mut rate = Rate::new(SECOND, 1000);
        rate.update(SECOND * 2, 10);
        assert_eq!(rate.per_second(), None);
        rate.update(SECOND * 3, 30);
        assert_eq!(rate.per_second(), Some(20));
    }

    proptest! {
        #[test]
        fn no_readings_break_it(readings in proptest::collection::vec((any::<u64>(), any::<u64>()), 0..20)) {
            let mut rate = Rate::new(Duration::ZERO, 0);
            for (at, counter) in readings {
                rate.update(Duration::from_nanos(at), counter);
            }
        }
    }
}
