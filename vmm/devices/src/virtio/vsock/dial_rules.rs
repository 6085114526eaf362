//! The rules for the guest's dials: the host ports, the number of streams at once, and the rate.
//!
//! A stream opened by a guest costs the host more than the guest: descriptors here, a message to the daemon,
//! and a place in the daemon until it is accepted. Any process of a container may dial. The agent dials once
//! in a VM's life for itself. For programs of containers, it dials as often as they connect to sockets of the
//! node. So there are two kinds of ports with separate counts: a guest at the limit of one still has the
//! other. Anything beyond the bounds is refused: with a reset, without a log line, before anything is
//! allocated. Pure: the caller passes the time.

use std::time::{Duration, Instant};

use crate::virtio::allowance::Allowance;

/// Most open streams from the guest to the agent's own ports.
pub(super) const STREAMS_MAX: usize = 8;

/// Dials in a row to the agent's own ports after a quiet time; one more after each second.
pub(super) const DIALS_IN_A_ROW: u32 = 8;

/// Most open streams to the programs' port. Clients of a node's sockets keep one connection each, and a pod
/// has few of them.
pub(super) const PROGRAM_STREAMS_MAX: usize = 64;

/// Dials in a row to the programs' port after a quiet time: as many as the most open streams.
pub(super) const PROGRAM_DIALS_IN_A_ROW: u32 = 64;

/// Interval for one more dial to the programs' port. A client connecting for each of its calls makes
/// progress, and a guest that only dials costs the daemon little time.
const PROGRAM_DIAL_EVERY: Duration = Duration::from_micros(62_500);

/// Host ports open to a guest.
#[derive(Clone, Debug, Default)]
pub struct HostPorts {
    /// Ports dialled by the agent for itself, seldom.
    pub agent: Vec<u32>,
    /// The port dialled by the agent for programs of containers.
    pub programs: Option<u32>,
}

/// Ports with common bounds.
#[derive(Debug)]
struct Bounds {
    ports: Vec<u32>,
    streams_max: usize,
    dials: Allowance,
}

/// See the module.
#[derive(Debug)]
pub(super) struct DialRules(Vec<Bounds>);

impl DialRules {
    /// Allows dials to these ports only.
    pub(super) fn new(ports: HostPorts) -> DialRules {
        let HostPorts { agent, programs } = ports;
        let agent = Bounds { ports: agent, streams_max: STREAMS_MAX, dials: Allowance::new(DIALS_IN_A_ROW) };
        let programs = Bounds {
            ports: programs.into_iter().collect(),
            streams_max: PROGRAM_STREAMS_MAX,
            dials: Allowance::every(PROGRAM_DIALS_IN_A_ROW, PROGRAM_DIAL_EVERY),
        };
        DialRules(vec![agent, programs])
    }

    /// Returns true if the guest may open a stream to `port` now. `open` returns its open streams to each
    /// port. An admitted stream counts.
    pub(super) fn admit(&mut self, port: u32, open: impl Fn(u32) -> usize, now: Instant) -> bool {
        let Some(bounds) = self.0.iter_mut().find(|bounds| bounds.ports.contains(&port)) else {
            return false;
        };
        let open: usize = bounds.ports.iter().map(|port| open(*port)).sum();
        open < bounds.streams_max && bounds.dials.take(now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NONE: fn(u32) -> usize = |_| 0;

    fn rules() -> (DialRules, Instant) {
        (DialRules::new(HostPorts { agent: vec![1024], programs: Some(1026) }), Instant::now())
    }

    #[test]
    fn only_named_ports_are_dialled() {
        let (mut rules, now) = rules();
        for port in [0, 1023, 1025, 2049, u32::MAX] {
            assert!(!rules.admit(port, NONE, now), "{port}");
        }
        assert!(rules.admit(1024, NONE, now) && rules.admit(1026, NONE, now));
        let mut none = DialRules::new(HostPorts::default());
        assert!(!none.admit(1024, NONE, now) && !none.admit(1026, NONE, now));
    }

    #[test]
    fn refused_ports_use_nothing_up() {
        let (mut rules, now) = rules();
        for port in 0..1000 {
            assert!(!rules.admit(port, NONE, now));
        }
        assert!(rules.admit(1024, NONE, now));
    }

    #[test]
    fn a_guest_with_too_many_streams_waits_until_one_ends() {
        let (mut rules, now) = rules();
        for (port, most) in [(1024, STREAMS_MAX), (1026, PROGRAM_STREAMS_MAX)] {
            let open = |count: usize| move |asked: u32| if asked == port { count } else { 0 };
            assert!(!rules.admit(port, open(most), now), "{port}");
            assert!(rules.admit(port, open(most - 1), now), "{port}");
        }
    }

    #[test]
    fn after_some_dials_in_a_row_a_guest_waits() {
        let (mut rules, now) = rules();
        let row = (0..100).filter(|_| rules.admit(1024, NONE, now)).count();
        assert_eq!(row, DIALS_IN_A_ROW as usize);
        assert!(rules.admit(1024, NONE, now + Duration::from_secs(1)));
        let row = (0..200).filter(|_| rules.admit(1026, NONE, now)).count();
        assert_eq!(row, PROGRAM_DIALS_IN_A_ROW as usize);
        assert!(rules.admit(1026, NONE, now + PROGRAM_DIAL_EVERY));
    }

    #[test]
    fn programs_that_dial_without_end_leave_the_agent_its_own_ports() {
        let (mut rules, now) = rules();
        let programs = |port: u32| if port == 1026 { PROGRAM_STREAMS_MAX } else { 0 };
        assert!((0..1000).filter(|_| rules.admit(1026, NONE, now)).count() > 0);
        assert!(rules.admit(1024, programs, now));
    }
}
