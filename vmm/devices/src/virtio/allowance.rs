//! A rate limit for a guest's actions: a burst, and one more action after each interval.
//!
//! Pure: the caller passes the time.

use std::time::{Duration, Instant};

/// The default interval of an allowance.
const EVERY: Duration = Duration::from_secs(1);

/// See the module.
#[derive(Debug)]
pub(crate) struct Allowance {
    /// Most actions in a row, after a quiet time.
    row: u32,
    /// Interval for one more action.
    every: Duration,
    /// Actions left at the time `counted`.
    left: u32,
    counted: Option<Instant>,
}

impl Allowance {
    /// Returns an unused allowance of `row` actions in a row, and of one more each second.
    pub(crate) fn new(row: u32) -> Allowance {
        Allowance::every(row, EVERY)
    }

    /// Returns an unused allowance of `row` actions in a row, and of one more after each interval. The
    /// interval is not zero.
    pub(crate) fn every(row: u32, every: Duration) -> Allowance {
        Allowance { row, every, left: row, counted: None }
    }

    /// Takes one action. Returns true if one was left.
    pub(crate) fn take(&mut self, now: Instant) -> bool {
        self.count(now);
        let taken = self.left > 0;
        self.left = self.left.saturating_sub(1);
        taken
    }

    /// Adds the actions for the elapsed time.
    fn count(&mut self, now: Instant) {
        let counted = *self.counted.get_or_insert(now);
        let gone_by = now.saturating_duration_since(counted).as_nanos();
        let more = u32::try_from(gone_by / self.every.as_nanos().max(1)).unwrap_or(u32::MAX);
        self.left = self.left.saturating_add(more).min(self.row);
        // Not `now`: the begun part of the next interval counts too.
        self.counted = counted.checked_add(self.every.saturating_mul(more)).or(Some(now));
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn nobody_takes_more_than_the_allowance(
            pauses_ms in prop::collection::vec(0u64..3000, 1..200),
            every_ms in 1u64..2000,
        ) {
            const ROW: u32 = 8;
            let every = Duration::from_millis(every_ms);
            let (mut allowance, start) = (Allowance::every(ROW, every), Instant::now());
            let (mut at, mut taken) = (Duration::ZERO, 0);
            for pause in pauses_ms {
                at += Duration::from_millis(pause);
                taken += u64::from(allowance.take(start + at));
                prop_assert!(u128::from(taken) <= u128::from(ROW) + at.as_millis() / every.as_millis());
            }
            // After a quiet time more are allowed, for a while.
            at += every * ROW;
            let row = (0..100).filter(|_| allowance.take(start + at)).count();
            prop_assert_eq!(row, ROW as usize);
        }
    }
}
