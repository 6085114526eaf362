//! How long a stream is read after its process has ended: what the process wrote is all taken, and others that it
//! left behind, who may hold the pipe for ever, are waited for only a little.

use std::future::Future;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::Instant;

/// How long the silence of those who were left behind is waited out.
const GRACE: Duration = Duration::from_millis(200);

/// See the module.
#[derive(Debug)]
pub(crate) struct Grace {
    ended: watch::Receiver<bool>,
    deadline: Option<Instant>,
    /// Bytes that have come since the end, and the most of them that the process itself can have left behind.
    after_end: usize,
    pipe_bytes: usize,
}

impl Grace {
    /// For a process whose pipe holds so many bytes at most.
    pub(crate) fn new(ended: watch::Receiver<bool>, pipe_bytes: usize) -> Grace {
        Grace { ended, deadline: None, after_end: 0, pipe_bytes }
    }

    /// Whether nothing more that comes is the process's.
    pub(crate) fn is_over(&mut self) -> bool {
        if self.deadline.is_none() && *self.ended.borrow() {
            self.deadline = Some(Instant::now() + GRACE);
        }
        self.deadline.is_some_and(|deadline| Instant::now() >= deadline) && self.after_end >= self.pipe_bytes
    }

    /// So many bytes have come.
    pub(crate) fn saw(&mut self, count: usize) {
        self.after_end += if self.deadline.is_some() { count } else { 0 };
    }

    /// Waits for bytes, or whatever else: `None` when the process has ended and its time is over.
    pub(crate) async fn wait<T>(&mut self, bytes: impl Future<Output = T>) -> Option<T> {
        tokio::pin!(bytes);
        if self.deadline.is_none() {
            tokio::select! {
                biased;
                found = &mut bytes => return Some(found),
                // The sender goes with the process's record: that is an end too.
                _ = self.ended.wait_for(|ended| *ended) => {}
            }
        }
        let deadline = *self.deadline.get_or_insert_with(|| Instant::now() + GRACE);
        // Bytes that are there count, however late it is.
        tokio::time::timeout_at(deadline, bytes).await.ok()
    }
}
