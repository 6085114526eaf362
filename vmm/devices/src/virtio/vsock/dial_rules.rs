//! The rules for a guest that dials: which host ports, how many streams at once, and how often.
//!
//! A stream that a guest opens costs the host more than the guest: descriptors here, a message to the daemon, and a
//! place in the daemon until somebody takes the stream. Any process of a container may dial. The agent dials once in
//! a VM's life, so that the bounds are far above what is needed, and all else is refused: with a reset, without a log
//! line, before anything is allocated. Pure: the time comes with each question.

use std::time::Instant;

use crate::virtio::allowance::Allowance;

/// Streams that the guest opened and that are there at once.
pub(super) const STREAMS_MAX: usize = 8;

/// Dials in a row after a quiet time; one more after each second.
pub(super) const DIALS_IN_A_ROW: u32 = 8;

/// See the module.
#[derive(Debug)]
pub(super) struct DialRules {
    ports: Vec<u32>,
    dials: Allowance,
}

impl DialRules {
    /// Dials to `ports` alone.
    pub(super) fn new(ports: Vec<u32>) -> DialRules {
        DialRules { ports, dials: Allowance::new(DIALS_IN_A_ROW) }
    }

    /// Whether the guest may open a stream to `port` now, having `open` of them. A stream that it may open counts.
    pub(super) fn admit(&mut self, port: u32, open: usize, now: Instant) -> bool {
        self.ports.contains(&port) && open < STREAMS_MAX && self.dials.take(now)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

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

    #[test]
    fn after_some_dials_in_a_row_a_guest_waits() {
        let (mut rules, now) = (DialRules::new(vec![1024]), Instant::now());
        let row = (0..100).filter(|_| rules.admit(1024, 0, now)).count();
        assert_eq!(row, DIALS_IN_A_ROW as usize);
        assert!(rules.admit(1024, 0, now + Duration::from_secs(1)));
    }
}
