//! Waits of minutes, in slices. If the node stands still, its clock jumps afterwards, and only one slice is
//! over: guests and others go on with their work then, and the wait goes on with them.

use std::time::Duration;

/// The longest part of a wait at once.
const SLICE: Duration = Duration::from_secs(10);

/// Waits for the work, at most this long. A standstill of the node counts as one slice.
pub(crate) async fn in_slices<T>(limit: Duration, work: impl Future<Output = T>) -> Option<T> {
    tokio::pin!(work);
    let mut left = limit;
    loop {
        let slice = left.min(SLICE);
        if let Ok(done) = tokio::time::timeout(slice, &mut work).await {
            return Some(done);
        }
        left -= slice;
        if left.is_zero() {
            return None;
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::sync::oneshot;

    use super::*;

    const LIMIT: Duration = Duration::from_secs(25);

    #[tokio::test(start_paused = true)]
    async fn a_node_that_stood_still_has_time_left() {
        let (done, answer) = oneshot::channel();
        let waiting = in_slices(LIMIT, answer);
        let working = async {
            tokio::time::advance(LIMIT * 2).await;
            tokio::time::sleep(Duration::from_secs(1)).await;
            done.send(()).unwrap();
        };
        let (waited, ()) = tokio::join!(waiting, working);
        assert_eq!(waited, Some(Ok(())));
    }

    #[tokio::test(start_paused = true)]
    async fn work_that_is_never_done_is_waited_for_as_long_as_the_limit_says() {
        for limit in [LIMIT, Duration::from_millis(300), Duration::ZERO] {
            let begun = tokio::time::Instant::now();
            assert_eq!(in_slices(limit, std::future::pending::<()>()).await, None);
            assert_eq!(begun.elapsed(), limit);
        }
    }
}
