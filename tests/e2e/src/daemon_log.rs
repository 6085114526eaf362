//! Waiting for lines of the daemon's log. `failure.rs` prints the log's end when a test fails.

use crate::daemon::Daemon;
use crate::wait::until;

impl Daemon {
    /// Waits until the log has this text `times` times, of this daemon and of those before it on its host.
    ///
    /// # Panics
    /// When the log has the text less often after [`WITHIN`](crate::wait::WITHIN).
    pub async fn logs(&self, text: &str, times: usize) {
        let event = format!("{text:?} to be in the daemon's log, {times} times");
        until(event, async || self.log().matches(text).count() >= times).await;
    }
}
