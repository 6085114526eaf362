//! Runs part of a future as a separate task, so that the part's wake-ups do not wake the whole. Unlike a bare
//! spawn, the task never outlives its caller.

use tokio::task::JoinSet;

/// Runs the future as a separate task. Dropping the returned future cancels the task.
///
/// # Panics
/// Passes a panic of the task on, in builds that unwind.
pub async fn in_own_task<T: Send + 'static>(future: impl Future<Output = T> + Send + 'static) -> T {
    let mut task = JoinSet::new();
    task.spawn(future);
    match task.join_next().await {
        Some(Ok(output)) => output,
        // Only tests get here: the release profile aborts on a panic.
        Some(Err(error)) if error.is_panic() => std::panic::resume_unwind(error.into_panic()),
        // The task was cancelled, like every task when the runtime ends.
        _ => std::future::pending().await,
    }
}

#[cfg(test)]
mod tests {
    use tokio::sync::oneshot;

    use super::*;

    #[tokio::test]
    async fn a_dropped_wait_cancels_the_task() {
        assert_eq!(in_own_task(async { 42 }).await, 42);
        let (held, dropped) = oneshot::channel::<()>();
        let endless = async move {
            let _held = held;
            std::future::pending::<()>().await;
        };
        tokio::select! {
            biased;
            () = in_own_task(endless) => panic!("it has no end"),
            () = tokio::task::yield_now() => {}
        }
        dropped.await.unwrap_err();
    }
}
