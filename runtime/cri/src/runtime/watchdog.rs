//! Whether the daemon answers itself in time, as whoever feeds the service manager's watchdog reports it.

use std::sync::{Mutex, PoisonError};

/// The last look at the daemon's own answers.
#[derive(Debug, Default)]
pub struct Watchdog(Mutex<Option<Result<(), String>>>);

impl Watchdog {
    /// Takes the outcome of a look: well, or why not, for people.
    pub fn report(&self, outcome: Result<(), String>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(outcome);
    }

    /// The last outcome; `None` where nobody looks.
    pub(super) fn last(&self) -> Option<Result<(), String>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}
