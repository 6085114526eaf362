//! The rules for a guest that dials: which host ports, how many streams at once, and how often.
//!
//! A stream that a guest opens costs the host more than the guest: descriptors here, a message to the daemon, and a
//! place in the daemon until somebody takes the stream. Any process of a container may dial. The agent dials once in
//! a VM's life, so that the bounds are far above what is needed, and all else is refused: with a reset, without a log
//! line, before anything is allocated. Pure: the time comes with each question.

use std::time::{Duration, Instant};

/// Streams that the guest opened and that are there at once.
pub(super) const STREAMS_MAX: usize = 8;

/// Dials in a row after a quiet time.
pub(super) const DIALS_IN_A_ROW: u32 = 8;

/// One dial more after each of these.
const DIAL_EVERY: Duration = Duration::from_secs(1);

/// See the module.
#[derive(Debug)]
pub(super) struct DialRules {
    ports: Vec<u32>,
    /// Dials that are left, as of `counted`.
    left: u32,
    counted: Option<Instant>,
}

impl DialRules {
    /// Dials to `ports` alone.
    pub(super) fn new(ports: Vec<u32>) -> DialRules {
        DialRules { ports, left: DIALS_IN_A_ROW, counted: None }
    }

    /// Whether the guest may open a stream to `port` now, having `open` of them. A stream that it may open counts.
    pub(super) fn admit(&mut self, port: u32, open: usize, now: Instant) -> bool {
        if !self.ports.contains(&port) || open >= STREAMS_MAX {
            return false;
        }
        self.count(now);
        let admitted = self.left > 0;
        self.left = self.left.saturating_sub(1);
        admitted
    }

    /// Adds the dials of the time that has gone by.
    fn count(&mut self, now: Instant) {
        let counted = *self.counted.get_or_insert(now);
        let seconds = now.saturating_duration_since(counted).as_secs();
        let more = u32::try_from(seconds / DIAL_EVERY.as_secs()).unwrap_or(u32::MAX);
        self.left = self.left.saturating_add(more).min(DIALS_IN_A_ROW);
        // Not `now`: what has begun of the next second counts too.
        self.counted = counted.checked_add(DIAL_EVERY.saturating_mul(more)).or(Some(now));
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn only_named_ports_are_dialled() {
        let (mut rules, now) = (DialRules::new(vec![1024]), Instant::now());
        for port in [0, 1023, 1025, 2049, u32::MAX] {
            assert!(!rules.admit(port, 0, now), "{port}");
        }
        assert!(rules.admit(1024, 0, now));
        assert!(!DialRules::new(Vec::new()).admit(1024, 0, now));
    }

    #[test]
    fn refused_ports_use_nothing_up() {
        let (mut rules, now) = (DialRules::new(vec![1024]), Instant::now());
        for port in 0..1000 {
            assert!(!rules.admit(port, 0, now));
        }
        assert!(rules.admit(1024, 0, now));
    }

    #[test]
    fn a_guest_with_too_many_streams_waits_until_one_ends() {
        let (mut rules, now) = (DialRules::new(vec![1024]), Instant::now());
        assert!(!rules.admit(1024, STREAMS_MAX, now));
        assert!(rules.admit(1024, STREAMS_MAX - 1, now));
    }

    proptest! {
        #[test]
        fn no_guest_dials_more_often_than_it_may(pauses_ms in prop::collection::vec(0u64..3000, 1..200)) {
            let (mut rules, start) = (DialRules::new(vec![1024]), Instant::now());
            let (mut at, mut admitted) = (Duration::ZERO, 0);
            for pause in pauses_ms {
                at += Duration::from_millis(pause);
                admitted += u64::from(rules.admit(1024, 0, start + at));
                prop_assert!(admitted <= u64::from(DIALS_IN_A_ROW) + at.as_secs());
            }
            // After a quiet time it may go on, for a while.
            at += DIAL_EVERY * DIALS_IN_A_ROW;
            let row = (0..100).filter(|_| rules.admit(1024, 0, start + at)).count();
            prop_assert_eq!(row, DIALS_IN_A_ROW as usize);
        }
    }
}
