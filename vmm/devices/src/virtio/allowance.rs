//! An allowance for what a guest may have done at a bounded rate: some in a row, and one more after each second.
//!
//! Pure: the time comes with each question.

use std::time::{Duration, Instant};

/// One more after each of these.
const EVERY: Duration = Duration::from_secs(1);

/// See the module.
#[derive(Debug)]
pub(crate) struct Allowance {
    /// Most that may be taken in a row, after a quiet time.
    row: u32,
    /// Left to be taken, as of `counted`.
    left: u32,
    counted: Option<Instant>,
}

impl Allowance {
    /// An allowance of `row` in a row, none of which is used up.
    pub(crate) fn new(row: u32) -> Allowance {
        Allowance { row, left: row, counted: None }
    }

    /// Takes one. Returns whether there was one left.
    pub(crate) fn take(&mut self, now: Instant) -> bool {
        self.count(now);
        let taken = self.left > 0;
        self.left = self.left.saturating_sub(1);
        taken
    }

    /// Adds what the time that has gone by allows.
    fn count(&mut self, now: Instant) {
        let counted = *self.counted.get_or_insert(now);
        let seconds = now.saturating_duration_since(counted).as_secs();
        let more = u32::try_from(seconds / EVERY.as_secs()).unwrap_or(u32::MAX);
        self.left = self.left.saturating_add(more).min(self.row);
        // Not `now`: what has begun of the next second counts too.
        self.counted = counted.checked_add(EVERY.saturating_mul(more)).or(Some(now));
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn nobody_takes_more_than_the_allowance(pauses_ms in prop::collection::vec(0u64..3000, 1..200)) {
            const ROW: u32 = 8;
            let (mut allowance, start) = (Allowance::new(ROW), Instant::now());
            let (mut at, mut taken) = (Duration::ZERO, 0);
            for pause in pauses_ms {
                at += Duration::from_millis(pause);
                taken += u64::from(allowance.take(start + at));
                prop_assert!(taken <= u64::from(ROW) + at.as_secs());
            }
            // After a quiet time there is more, for a while.
            at += EVERY * ROW;
            let row = (0..100).filter(|_| allowance.take(start + at)).count();
            prop_assert_eq!(row, ROW as usize);
        }
    }
}
