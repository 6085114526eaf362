//! The control law of the guest's clock: from an offset to a correction. Pure; time comes in as numbers.
//!
//! ```text
//!   far off ──────────▶ a step, and the rate as learnt
//!   off ──────────────▶ rate = learnt + half of the rate to close the offset by the next reading
//!   within the error ─▶ rate = learnt
//! ```
//!
//! The offset is the host's clock less the guest's. The law has a proportional and an integral part. Let the
//! closing rate be the rate to close the offset until the next reading. The law applies half of it and learns
//! a sixteenth. A sixteenth is a quarter of the square of a half, so the loop is critically damped: it does
//! not oscillate, and each reading closes a quarter of the remaining offset.

use std::time::Duration;

/// Offset from which the clock is stepped, the same as in NTP daemons (`STEPT` of RFC 5905). Programs notice
/// a step, but slewing a larger offset would take too long.
const STEP_NS: i64 = 128_000_000;
/// The kernel's limit of a rate (`MAXFREQ` of include/linux/timex.h), in nanoseconds per second.
pub(super) const RATE_MAX: i64 = 500_000;

const NS_PER_SECOND: i128 = 1_000_000_000;
const APPLIED: i64 = 2;
const LEARNT: i64 = 16;

/// The step and the rate to set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Correction {
    /// Nanoseconds to add to the clock at once; 0 for none.
    pub(super) step_ns: i64,
    /// The clock's rate beyond the hardware's own, in nanoseconds per second.
    pub(super) rate: i64,
}

/// The law's state.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Law {
    /// Rate of the host's clock beyond the guest's hardware, in nanoseconds per second.
    learnt: i64,
}

impl Law {
    /// Returns the correction for a measured offset with its error. `since` is the time since the last
    /// correction.
    pub(super) fn correct(&mut self, offset_ns: i64, error_ns: i64, since: Duration) -> Correction {
        if offset_ns.saturating_abs() >= STEP_NS {
            // The host was suspended, or its clock was set. Such an offset does not depend on rates.
            return Correction { step_ns: offset_ns, rate: self.learnt };
        }
        if offset_ns.saturating_abs() <= error_ns {
            return Correction { step_ns: 0, rate: self.learnt };
        }
        let closing = closing_rate(offset_ns, since);
        let rate = self.learnt + closing / APPLIED;
        if rate.abs() > RATE_MAX {
            // Nothing is learnt while the rate is at its limit. The remaining offset is old, and its growth
            // is our own doing.
            return Correction { step_ns: 0, rate: rate.clamp(-RATE_MAX, RATE_MAX) };
        }
        self.learnt = (self.learnt + closing / LEARNT).clamp(-RATE_MAX, RATE_MAX);
        Correction { step_ns: 0, rate }
    }
}

/// Rate to close the offset in the time passed since the last correction, but at least in a second. For an
/// offset below [`STEP_NS`] the result fits `i64` many times over.
fn closing_rate(offset_ns: i64, since: Duration) -> i64 {
    let since_ns = i128::try_from(since.as_nanos()).unwrap_or(i128::MAX).max(NS_PER_SECOND);
    i64::try_from(i128::from(offset_ns) * NS_PER_SECOND / since_ns).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const LOOK: Duration = Duration::from_secs(32);
    const LOOK_SECONDS: i64 = 32;

    /// A simulated clock. The host's clock drifts from it at `drift` nanoseconds per second.
    struct Clock {
        law: Law,
        offset_ns: i64,
        drift: i64,
        steps: usize,
    }

    impl Clock {
        fn new(offset_ns: i64, drift: i64) -> Clock {
            Clock { law: Law::default(), offset_ns, drift, steps: 0 }
        }

        /// One reading with an error of `noise`, and the time until the next.
        fn look(&mut self, noise: i64, error_ns: i64) -> Correction {
            let correction = self.law.correct(self.offset_ns + noise, error_ns, LOOK);
            self.steps += usize::from(correction.step_ns != 0);
            self.offset_ns -= correction.step_ns;
            self.offset_ns += (self.drift - correction.rate) * LOOK_SECONDS;
            correction
        }
    }

    proptest! {
        #[test]
        fn any_clock_that_can_be_slewed_comes_to_the_host_s_and_stays(
            offset in -10 * STEP_NS..10 * STEP_NS,
            drift in -RATE_MAX / 2..RATE_MAX / 2,
            noise in proptest::collection::vec(-10_000i64..10_000, 400),
        ) {
            let mut clock = Clock::new(offset, drift);
            for (look, noise) in noise.iter().enumerate() {
                let correction = clock.look(*noise, 0);
                prop_assert!(correction.rate.abs() <= RATE_MAX);
                if look > 200 {
                    prop_assert!(clock.offset_ns.abs() < 100_000, "{} ns at look {look}", clock.offset_ns);
                }
            }
            prop_assert!(clock.steps <= 1);
        }

        #[test]
        fn a_jump_is_stepped_at_once_and_teaches_nothing(
            drift in -RATE_MAX / 2..RATE_MAX / 2,
            jump in prop_oneof![STEP_NS * 2..i64::MAX / 4, -i64::MAX / 4..-STEP_NS * 2],
        ) {
            let mut clock = Clock::new(0, drift);
            for _ in 0..300 {
                clock.look(0, 0);
            }
            let steps = clock.steps;
            clock.offset_ns += jump;
            let correction = clock.look(0, 0);
            prop_assert_eq!(clock.steps, steps + 1);
            prop_assert!((correction.rate - drift).abs() < 1000, "{} for {drift}", correction.rate);
            prop_assert!(clock.offset_ns.abs() < 100_000);
        }

        #[test]
        fn a_coarse_measure_is_not_followed_within_its_error(
            drift in -100_000i64..100_000,
            noise in proptest::collection::vec(-4_000_000i64..4_000_000, 200),
        ) {
            const ERROR_NS: i64 = 20_000_000;
            let mut clock = Clock::new(0, drift);
            for noise in noise {
                clock.look(noise, ERROR_NS);
                prop_assert!(clock.offset_ns.abs() < 2 * ERROR_NS, "{} ns", clock.offset_ns);
            }
            prop_assert_eq!(clock.steps, 0);
        }

        #[test]
        fn no_number_breaks_it(offset: i64, error in 0i64.., seconds in 0u64..) {
            let correction = Law::default().correct(offset, error, Duration::from_secs(seconds));
            prop_assert!(correction.rate.abs() <= RATE_MAX);
            prop_assert!(correction.step_ns == 0 || correction.step_ns == offset);
        }
    }
}
