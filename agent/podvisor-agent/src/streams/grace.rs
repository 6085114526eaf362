//! How long a stream is read after its process has ended: all that the process itself wrote is taken, and processes
//! that it left behind, which may hold the pipe for ever, are waited for only a little.

use std::future::Future;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::Instant;

/// How long a stream without bytes is read after the process's end.
const GRACE: Duration = Duration::from_millis(200);

/// How long a call on a stream's pipe may take after the process's end. A process that was left behind may hold the pipe as long
/// as it likes; the ended one does not, and a call that nobody holds up takes no time.
const CALL: Duration = Duration::from_secs(5);

/// The end of one stream, as the process's end and later bytes decide it.
#[derive(Debug)]
pub(crate) struct Grace {
    ended: watch::Receiver<bool>,
    deadline: Option<Instant>,
    /// Bytes that have come since the end; beyond `pipe_bytes` they cannot be the process's own.
    after_end: usize,
    pipe_bytes: usize,
}

impl Grace {
    /// The grace of a process whose pipe holds `pipe_bytes` at most.
    pub(crate) fn new(ended: watch::Receiver<bool>, pipe_bytes: usize) -> Grace {
        Grace { ended, deadline: None, after_end: 0, pipe_bytes }
    }

    /// Whether no later byte can be the process's own.
    pub(crate) fn is_over(&mut self) -> bool {
        if self.deadline.is_none() && *self.ended.borrow() {
            self.deadline = Some(Instant::now() + GRACE);
        }
        self.deadline.is_some_and(|deadline| Instant::now() >= deadline) && self.after_end >= self.pipe_bytes
    }

    /// Counts bytes that have come.
    pub(crate) fn saw(&mut self, count: usize) {
        self.after_end += if self.deadline.is_some() { count } else { 0 };
    }

    /// Waits for `bytes`; `None` when the process has ended and the time after its end is over.
    pub(crate) async fn wait<T>(&mut self, bytes: impl Future<Output = T>) -> Option<T> {
        tokio::pin!(bytes);
        if self.deadline.is_none() {
            tokio::select! {
                biased;
                found = &mut bytes => return Some(found),
                // The sender is dropped with the process, which is an end too.
                _ = self.ended.wait_for(|ended| *ended) => {}
            }
        }
        let deadline = *self.deadline.get_or_insert_with(|| Instant::now() + GRACE);
        // Bytes that are there are taken even after the deadline.
        tokio::time::timeout_at(deadline, bytes).await.ok()
    }

    /// Waits for a call on the stream's pipe; `None` when the process has ended and somebody else holds the pipe.
    pub(crate) async fn wait_for_call<T>(&self, call: impl Future<Output = T>) -> Option<T> {
        tokio::pin!(call);
        let mut ended = self.ended.clone();
        tokio::select! {
            biased;
            done = &mut call => return Some(done),
            // The sender is dropped with the process, which is an end too.
            _ = ended.wait_for(|ended| *ended) => {}
        }
        tokio::time::timeout(CALL, call).await.ok()
    }
}
