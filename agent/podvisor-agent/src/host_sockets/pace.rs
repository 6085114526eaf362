//! Limits the number and the rate of connections to the host, a little below the VMM's limits for a guest
//! (`dial_rules` of its vsock device). A faster program waits here; the VMM would reset its connection.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, sleep};

/// Most simultaneous streams to the host. The VMM's limit is 64.
const STREAMS_MAX: usize = 60;

/// Streams in a row after a quiet time. The VMM's limit is 64.
const IN_A_ROW: u32 = 48;

/// One more stream is allowed after each of these. The VMM allows one after 62.5 ms.
const EVERY: Duration = Duration::from_millis(70);

/// See the module.
#[derive(Debug)]
pub(super) struct Pace {
    room: Arc<Semaphore>,
    /// When the next stream would be due without bursts.
    next: Mutex<Option<Instant>>,
}

impl Default for Pace {
    fn default() -> Pace {
        Pace { room: Arc::new(Semaphore::new(STREAMS_MAX)), next: Mutex::default() }
    }
}

impl Pace {
    /// Waits until one more stream may be opened. The returned value holds the stream's place.
    pub(super) async fn take(&self) -> Option<OwnedSemaphorePermit> {
        // The semaphore is never closed.
        let place = Arc::clone(&self.room).acquire_owned().await.ok()?;
        let now = Instant::now();
        let due = {
            let mut next = self.next.lock().unwrap_or_else(PoisonError::into_inner);
            let (due, after) = due(now, *next);
            *next = Some(after);
            due
        };
        sleep(due.saturating_duration_since(now)).await;
        Some(place)
    }
}

/// When a stream wanted now may be opened, and the new value of `next`.
fn due(now: Instant, next: Option<Instant>) -> (Instant, Instant) {
    let spread = EVERY * IN_A_ROW;
    let next = next.unwrap_or(now).max(now);
    // While the queue ahead is shorter than a row, a stream need not wait.
    let due = next.checked_sub(spread).map_or(now, |due| due.max(now));
    (due, next + EVERY)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn some_in_a_row_do_not_wait_and_later_ones_come_one_by_one() {
        let now = Instant::now();
        let (mut next, mut waits) = (None, Vec::new());
        for _ in 0..IN_A_ROW + 10 {
            let (due, after) = due(now, next);
            waits.push(due - now);
            next = Some(after);
        }
        let row = usize::try_from(IN_A_ROW).unwrap();
        assert!(waits[..=row].iter().all(Duration::is_zero), "{waits:?}");
        assert!(waits[row + 1..].iter().zip(1..).all(|(wait, number)| *wait == EVERY * number), "{waits:?}");
        // After a quiet time a full row is allowed again.
        let later = now + EVERY * 100;
        assert_eq!(due(later, next).0, later);
    }

    #[tokio::test(start_paused = true)]
    async fn streams_beyond_the_room_wait_for_one_to_end() {
        let pace = Pace::default();
        let mut places = Vec::new();
        for _ in 0..STREAMS_MAX {
            places.push(pace.take().await.unwrap());
        }
        assert!(tokio::time::timeout(Duration::from_secs(60), pace.take()).await.is_err());
        places.pop();
        drop(pace.take().await.unwrap());
    }
}
