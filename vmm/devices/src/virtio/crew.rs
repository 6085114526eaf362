//! The number of threads serving one device, and the number of idle ones. Pure.
//!
//! ```text
//!   started ──> idle <──> at work
//!                │
//!                └── nothing to do for LINGER, and another one is idle ──> ended
//! ```
//!
//! The first thread exists as long as the device works. A thread going to work starts another one if none is
//! idle.

use std::time::Duration;

/// Time an additional thread stays without work.
pub(crate) const LINGER: Duration = Duration::from_secs(5);

/// The threads of one device.
#[derive(Debug)]
pub(crate) struct Crew {
    most: usize,
    threads: usize,
    idle: usize,
}

impl Crew {
    /// Starts with one idle thread, of at most `most`.
    pub(crate) fn new(most: usize) -> Crew {
        Crew { most, threads: 1, idle: 1 }
    }

    /// Records that an idle thread goes to work.
    pub(crate) fn begin_work(&mut self) {
        self.idle -= 1;
    }

    /// Records that a thread is idle again.
    pub(crate) fn end_work(&mut self) {
        self.idle += 1;
    }

    /// Returns true if one more thread should be started because none is idle.
    pub(crate) fn is_short(&self) -> bool {
        self.idle == 0 && self.threads < self.most
    }

    /// Records one more started thread.
    pub(crate) fn add(&mut self) {
        self.threads += 1;
        self.idle += 1;
    }

    /// Records that a started thread cannot begin. The thread still counts, so no other one is tried in its
    /// place.
    pub(crate) fn lose(&mut self) {
        self.idle -= 1;
    }

    /// Called when an additional idle thread has nothing to do. Returns true if it may end; it must end then.
    pub(crate) fn leave(&mut self) -> bool {
        let others = self.idle > 1;
        if others {
            self.idle -= 1;
            self.threads -= 1;
        }
        others
    }

    /// Returns the number of idle threads.
    #[cfg(test)]
    pub(crate) fn idle(&self) -> usize {
        self.idle
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_is_started_where_nobody_is_idle_up_to_a_bound() {
        let mut crew = Crew::new(2);
        assert!(!crew.is_short());
        crew.begin_work();
        assert!(crew.is_short());
        crew.add();
        assert!(!crew.is_short(), "the new one is idle");
        crew.begin_work();
        assert!(!crew.is_short(), "there are as many as there may be");
    }

    #[test]
    fn a_thread_ends_only_where_another_one_is_idle() {
        let mut crew = Crew::new(4);
        crew.begin_work();
        crew.add();
        assert!(!crew.leave(), "the other one is at work");
        crew.end_work();
        assert!(crew.leave());
        assert!(!crew.leave());
        crew.begin_work();
        assert!(crew.is_short());
    }

    #[test]
    fn a_thread_that_cannot_begin_is_not_tried_again() {
        let mut crew = Crew::new(2);
        crew.begin_work();
        crew.add();
        crew.lose();
        assert!(!crew.is_short());
    }
}
