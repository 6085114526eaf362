//! The daemon's health check, as reported by the task feeding the service manager's watchdog.

use std::sync::{Mutex, PoisonError};

/// The last outcome of the daemon's own health check.
#[derive(Debug, Default)]
pub struct Watchdog(Mutex<Option<Result<(), String>>>);

impl Watchdog {
    /// Stores the outcome of a check: good, or the reason why not, for people.
    pub fn report(&self, outcome: Result<(), String>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(outcome);
    }

    /// The last outcome. `None` without a watchdog.
    pub(super) fn last(&self) -> Option<Result<(), String>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}
