//! When a driver hears of requests that were answered, one after the other, while there are more. Pure.

use std::time::Duration;

/// Requests that are answered before the driver hears of the first of them.
const ANSWERS_MAX: u32 = 8;

/// Time within which a request is answered if it is one that a driver may wait for beside its own.
const QUICK: Duration = Duration::from_micros(100);

/// Answers of which the driver has not heard.
#[derive(Debug, Default)]
pub(super) struct Unheard(u32);

impl Unheard {
    /// Adds a request that took this long. Returns whether the driver is to hear of all now: the next one is likely to take as long.
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
