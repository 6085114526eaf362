//! Waiting for an event: the only place for polling in a test. The module owns the pause between two looks
//! and the bound of a wait. If the event does not come, the error has its name and the last value seen.
//!
//! A test never sleeps in place of waiting: how long something takes differs from node to node by a factor of
//! ten.

use std::fmt::{Debug, Display};
use std::time::Duration;

use tokio::time::Instant;

/// Longest wait for an event. Only a bug takes so long: a loaded software node is ten times slower than a
/// laptop.
pub const WITHIN: Duration = Duration::from_secs(300);

/// Pause between two looks.
const LOOK_INTERVAL: Duration = Duration::from_millis(50);

/// Waits until `look` returns true.
///
/// # Panics
/// When [`WITHIN`] has passed. The message names the event.
pub async fn until(event: impl Display, mut look: impl AsyncFnMut() -> bool) {
    let look = async || if look().await { Ok(()) } else { Err(()) };
    if within(WITHIN, look).await.is_err() {
        panic!("waited {} s for {event}", WITHIN.as_secs());
    }
}

/// Waits until `look` succeeds, and returns its value. A failing look returns the value seen.
///
/// # Panics
/// After [`WITHIN`]. The message has the event and the last value seen.
pub async fn until_seen<T, S: Debug>(event: impl Display, look: impl AsyncFnMut() -> Result<T, S>) -> T {
    match within(WITHIN, look).await {
        Ok(value) => value,
        Err(seen) => panic!("waited {} s for {event}; last seen: {seen:?}", WITHIN.as_secs()),
    }
}

/// Looks until `look` succeeds or the time is over. Returns the value, or the last failed look's.
///
/// # Errors
/// When the time is over.
pub async fn within<T, S>(bound: Duration, mut look: impl AsyncFnMut() -> Result<T, S>) -> Result<T, S> {
    let deadline = Instant::now() + bound;
    loop {
        match look().await {
            Ok(value) => return Ok(value),
            Err(seen) if Instant::now() > deadline => return Err(seen),
            Err(_) => tokio::time::sleep(LOOK_INTERVAL).await,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn an_event_ends_the_wait_with_its_value() {
        let mut looks = 0;
        let seen = until_seen("the third look", async || {
            looks += 1;
            if looks == 3 { Ok("there") } else { Err(looks) }
        });
        assert_eq!(seen.await, "there");
        assert_eq!(looks, 3);
    }

    #[tokio::test(start_paused = true)]
    #[should_panic(expected = "waited 300 s for a file; last seen: \"no file\"")]
    async fn a_wait_without_its_event_says_what_it_waited_for_and_saw() {
        until_seen("a file", async || Err::<(), _>("no file")).await;
    }

    #[tokio::test(start_paused = true)]
    #[should_panic(expected = "waited 300 s for the daemon's end")]
    async fn a_condition_that_never_holds_is_named() {
        until("the daemon's end", async || false).await;
    }
}
