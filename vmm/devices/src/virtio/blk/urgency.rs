//! Decides whether a disk's thread may preempt the guest when the guest wakes it. Pure.
//!
//! While the thread waits for its turn, a guest with many requests continues to add them, and the thread then
//! finds them all. A guest with a single request has nothing else to do, and would have to halt first.
//!
//! ```text
//!             a turn of wake-ups found one request each
//!   patient ─────────────────────────────────────────────> urgent
//!      ^                                                     │
//!      └────────────── some wake-ups later: a trial ─────────┘
//! ```

/// Wake-ups of a patient thread before its requests are counted.
const TURN: u32 = 8;

/// Average requests for each wake-up of a turn to make patience worth it.
const MANY: u32 = 2;

/// Wake-ups before an urgent thread tries to be patient. An urgent thread hardly ever finds more than one
/// request.
const TRIAL_AFTER: u32 = 128;

/// How urgent a thread is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Urgency {
    /// The thread waits for its turn (SCHED_BATCH).
    Patient,
    /// The thread runs when it is woken, the kernel's default.
    Urgent,
}

/// A thread's urgency, and its recent results.
#[derive(Debug)]
pub(super) struct Wakings {
    urgency: Urgency,
    wakings: u32,
    requests: u32,
}

impl Wakings {
    /// Returns a patient thread.
    pub(super) fn new() -> Wakings {
        Wakings { urgency: Urgency::Patient, wakings: 0, requests: 0 }
    }

    /// Adds a wake-up with this many requests. Returns the thread's new urgency if it changes.
    pub(super) fn add(&mut self, requests: u32) -> Option<Urgency> {
        self.wakings += 1;
        self.requests = self.requests.saturating_add(requests);
        let turn = if self.urgency == Urgency::Patient { TURN } else { TRIAL_AFTER };
        if self.wakings < turn {
            return None;
        }
        let few = self.requests < self.wakings * MANY;
        (self.wakings, self.requests) = (0, 0);
        let before = self.urgency;
        self.urgency = match before {
            Urgency::Patient if few => Urgency::Urgent,
            Urgency::Patient | Urgency::Urgent => Urgency::Patient,
        };
        (self.urgency != before).then_some(self.urgency)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The changes after a series of wake-ups, each with the number of the wake-up.
    fn changes(requests: impl IntoIterator<Item = u32>) -> Vec<(usize, Urgency)> {
        let mut wakings = Wakings::new();
        let changes =
            requests.into_iter().enumerate().map(|(number, requests)| (number, wakings.add(requests)));
        changes.filter_map(|(number, change)| Some((number, change?))).collect()
    }

    #[test]
    fn a_thread_that_finds_one_request_at_a_time_is_urgent_but_for_trials() {
        use Urgency::{Patient, Urgent};
        assert_eq!(changes([1; 8 + 128 + 8]), [(7, Urgent), (135, Patient), (143, Urgent)]);
    }

    #[test]
    fn a_thread_that_finds_many_stays_patient() {
        assert_eq!(changes([32; 1000]), []);
        assert_eq!(changes([4, 0].repeat(500)), [], "on average");
    }

    #[test]
    fn a_trial_finds_that_there_is_more_to_do_now() {
        let found = changes([[1; 100].as_slice(), &[32; 1000]].concat());
        assert_eq!(found, [(7, Urgency::Urgent), (135, Urgency::Patient)]);
    }
}
