//! Decides when to notify a driver of answers while more requests are served. Pure.

use std::time::Duration;

/// Most requests answered before the driver is notified of the first of them.
const ANSWERS_MAX: u32 = 8;

/// Longest time of a quick request. A driver may wait for another quick request in addition to its own.
const QUICK: Duration = Duration::from_micros(100);

/// Answers without a notification of the driver so far.
#[derive(Debug, Default)]
pub(super) struct Unheard(u32);

impl Unheard {
    /// Adds a request with its duration. Returns true if the driver should be notified of all answers now:
    /// after a slow request, the next one is likely to be slow too.
    pub(super) fn add(&mut self, took: Duration) -> bool {
        self.0 += 1;
        let hears = self.0 == ANSWERS_MAX || took > QUICK;
        if hears {
            self.0 = 0;
        }
        hears
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quick_requests_are_heard_of_together() {
        let mut unheard = Unheard::default();
        let heard: Vec<bool> = (0..16).map(|_| unheard.add(QUICK)).collect();
        assert_eq!(heard.iter().filter(|heard| **heard).count(), 2);
        assert!(heard[7] && heard[15]);
    }

    #[test]
    fn a_request_that_took_long_is_heard_of_at_once() {
        let mut unheard = Unheard::default();
        assert!(!unheard.add(Duration::ZERO));
        assert!(unheard.add(QUICK + Duration::from_nanos(1)));
        assert!((0..7).all(|_| !unheard.add(Duration::ZERO)), "it is counted anew");
    }
}
