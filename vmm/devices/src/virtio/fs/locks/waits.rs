//! Requests waiting for a lock of another owner. No thread of the device or the share waits itself: a
//! request keeps its chain, and is tried again.
//!
//! The kernel says nothing when a lock of an open description becomes free: there is no event to wait for.
//! If this share releases a lock, it is tried for at once. If another pod or a program of the host releases
//! one, a timer finds it. The timer slows down from [`DELAY_MIN`] to [`DELAY_MAX`], and stops while nothing
//! waits.

use std::collections::BTreeSet;
use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use vmm_sys_util::timerfd::TimerFd;

use super::LOCK_BYTES;
use crate::virtio::chain::Segment;
use crate::virtio::ring::Taken;

/// Most requests waiting at once: half of the ring, to leave a place in it for requests to unlock.
const WAITS_MAX: usize = 128;

/// Least and longest time between two looks. A lock held for a moment is had soon after. A lock held for
/// long costs the host four system calls a second for each waiting request.
const DELAY_MIN: Duration = Duration::from_millis(10);
const DELAY_MAX: Duration = Duration::from_millis(250);

/// A waiting request.
pub(in crate::virtio::fs) struct Wait {
    pub(in crate::virtio::fs) taken: Taken,
    /// Place of the answer.
    pub(in crate::virtio::fs) reply: Vec<Segment>,
    /// The request's number. Its answer repeats it.
    pub(in crate::virtio::fs) unique: u64,
    /// The asking thread and process, by the guest's numbers.
    pub(in crate::virtio::fs) pids: [u32; 2],
    /// The request as the driver made it.
    pub(in crate::virtio::fs) message: [u8; LOCK_BYTES],
}

impl Wait {
    /// Returns true if the request is of one of these processes.
    fn is_of(&self, pids: &BTreeSet<u32>) -> bool {
        self.pids.iter().any(|pid| pids.contains(pid))
    }
}

/// All waiting requests of a share, and the timer for the next look at them. It is readable when a look is
/// due.
pub(in crate::virtio::fs) struct Waiting {
    waits: Mutex<(Waits, TimerFd)>,
}

impl Waiting {
    pub(in crate::virtio::fs) fn new() -> io::Result<Waiting> {
        Ok(Waiting { waits: Mutex::new((Waits::default(), TimerFd::new()?)) })
    }

    /// Returns true if one more may wait. Threads asking at once may all add theirs.
    pub(in crate::virtio::fs) fn has_room(&self) -> bool {
        self.waits().0.has_room()
    }

    /// Adds a request after its first attempt.
    pub(in crate::virtio::fs) fn push(&self, wait: Wait) {
        let mut waits = self.waits();
        let now = Instant::now();
        waits.0.push(wait, now);
        set(&mut waits, now);
    }

    /// Forgets all requests. Their chains are the driver's again.
    pub(in crate::virtio::fs) fn clear(&self) {
        let mut waits = self.waits();
        waits.0 = Waits::default();
        set(&mut waits, Instant::now());
    }

    /// Tries all requests, if it is time or a lock was `freed`. `attempt` answers a request and returns
    /// true, or leaves it waiting.
    pub(in crate::virtio::fs) fn look(&self, now: Instant, freed: bool, attempt: impl FnMut(&Wait) -> bool) {
        let mut waits = self.waits();
        if freed || waits.0.is_due(now) {
            waits.0.look(now, attempt);
            set(&mut waits, now);
        }
    }

    /// Takes the requests of some processes.
    pub(in crate::virtio::fs) fn interrupt(&self, pids: &BTreeSet<u32>) -> Vec<Wait> {
        let mut waits = self.waits();
        let ended = waits.0.interrupt(pids);
        set(&mut waits, Instant::now());
        ended
    }

    fn waits(&self) -> MutexGuard<'_, (Waits, TimerFd)> {
        self.waits.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl AsRawFd for Waiting {
    fn as_raw_fd(&self) -> RawFd {
        self.waits().1.as_raw_fd()
    }
}

/// Sets the timer to the next look, and stops it while nothing waits.
fn set((waits, timer): &mut (Waits, TimerFd), now: Instant) {
    let set = match waits.patience(now) {
        // A timer set to no time at all stops.
        Some(patience) => timer.reset(patience.max(Duration::from_millis(1)), None),
        None => timer.clear(),
    };
    if let Err(error) = set {
        tracing::error!(%error, "requests waiting for locks are not tried again in time");
    }
}

/// Waiting requests, in the order of their arrival.
#[derive(Default)]
struct Waits {
    list: Vec<Wait>,
    delay: Duration,
    /// Time of the next look, while something waits.
    due: Option<Instant>,
}

impl Waits {
    /// Returns true if one more may wait.
    fn has_room(&self) -> bool {
        self.list.len() < WAITS_MAX
    }

    /// Adds a request after its first attempt.
    fn push(&mut self, wait: Wait, now: Instant) {
        self.list.push(wait);
        self.delay = DELAY_MIN;
        self.due = Some(now + self.delay);
    }

    /// Time until the next look. `None` while nothing waits.
    fn patience(&self, now: Instant) -> Option<Duration> {
        self.due.map(|due| due.saturating_duration_since(now))
    }

    /// Returns true if it is time for a look.
    fn is_due(&self, now: Instant) -> bool {
        self.due.is_some_and(|due| due <= now)
    }

    /// Tries all requests. `attempt` answers a request and returns true, or leaves it waiting.
    fn look(&mut self, now: Instant, mut attempt: impl FnMut(&Wait) -> bool) {
        let before = self.list.len();
        self.list.retain(|wait| !attempt(wait));
        let none_had = self.list.len() == before;
        self.delay = if none_had { (self.delay * 2).min(DELAY_MAX) } else { DELAY_MIN };
        self.due = (!self.list.is_empty()).then(|| now + self.delay);
    }

    /// Takes the requests of some processes.
    fn interrupt(&mut self, pids: &BTreeSet<u32>) -> Vec<Wait> {
        let (ended, waiting) = std::mem::take(&mut self.list).into_iter().partition(|wait| wait.is_of(pids));
        self.list = waiting;
        if self.list.is_empty() {
            self.due = None;
        }
        ended
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wait(pid: u32) -> Wait {
        let (taken, pids) = (Taken { head: 0, fault: None }, [pid + 1000, pid]);
        Wait { taken, reply: Vec::new(), unique: 1, pids, message: [0; LOCK_BYTES] }
    }

    #[test]
    fn looks_become_rare_while_nothing_is_had_and_stop_when_nothing_waits() {
        let start = Instant::now();
        let mut waits = Waits::default();
        assert_eq!(waits.patience(start), None);
        waits.push(wait(1), start);
        assert_eq!(waits.patience(start), Some(DELAY_MIN));
        assert!(!waits.is_due(start) && waits.is_due(start + DELAY_MIN));
        for _ in 0..10 {
            waits.look(start, |_| false);
        }
        assert_eq!(waits.patience(start), Some(DELAY_MAX));
        waits.push(wait(2), start);
        assert_eq!(waits.patience(start), Some(DELAY_MIN));
        waits.look(start, |wait| wait.pids[1] == 1);
        assert_eq!(waits.patience(start), Some(DELAY_MIN));
        waits.look(start, |_| true);
        assert_eq!(waits.patience(start), None);
    }

    #[test]
    fn waits_are_bounded_and_ended_by_process_or_thread() {
        let start = Instant::now();
        let mut waits = Waits::default();
        for pid in 1.. {
            if !waits.has_room() {
                break;
            }
            waits.push(wait(pid), start);
        }
        assert_eq!(waits.list.len(), WAITS_MAX);
        let ended = waits.interrupt(&BTreeSet::from([3, 1005, 5000]));
        assert_eq!(ended.iter().map(|wait| wait.pids[1]).collect::<Vec<_>>(), [3, 5]);
        assert_eq!(waits.interrupt(&(0..5000).collect()).len(), WAITS_MAX - 2);
        assert_eq!(waits.patience(start), None);
    }
}
