//! Decides how long a stream is read after its process has ended. All output of the process itself is read.
//! Its orphans may hold the pipe forever, so they only get a short time, and somewhat more while they write.

use std::future::Future;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::Instant;

use crate::streams::pipe_end::PipeEnd;

/// How long a silent stream is read after the process's end.
const GRACE: Duration = Duration::from_millis(200);

/// How long a stream is read after the process's end while bytes still arrive. A shell's last child often
/// writes its last lines within this time. containerd's shim waits as long for a container's output.
const LONGEST: Duration = Duration::from_secs(2);

/// Timeout of a call on a stream's pipe after the process's end. An orphan may hold the pipe indefinitely.
/// The ended process does not hold it, and an unblocked call takes no time.
const CALL: Duration = Duration::from_secs(5);

/// End of reading after the process's end.
#[derive(Debug, Clone, Copy)]
struct Deadline {
    silent: Instant,
    latest: Instant,
}

impl Deadline {
    fn from_now() -> Deadline {
        let now = Instant::now();
        Deadline { silent: now + GRACE, latest: now + LONGEST }
    }

    /// The deadline after bytes have arrived.
    fn extended(self) -> Deadline {
        Deadline { silent: (Instant::now() + GRACE).min(self.latest), ..self }
    }
}

/// Determines the end of one stream, from the process's end and later bytes.
#[derive(Debug)]
pub(crate) struct Grace {
    ended: watch::Receiver<bool>,
    deadline: Option<Deadline>,
    /// Bytes received since the end. Beyond `pipe_bytes` they cannot be the process's own.
    after_end: usize,
    pipe_bytes: usize,
    /// Whether the pipe was asked for its capacity after the end.
    measured: bool,
}

impl Grace {
    /// Starts the grace of a process. Its pipe holds at most `pipe_bytes`, unless the process enlarges it.
    pub(crate) fn new(ended: watch::Receiver<bool>, pipe_bytes: usize) -> Grace {
        Grace { ended, deadline: None, after_end: 0, pipe_bytes, measured: false }
    }

    /// Returns true if no later byte can be the process's own. After the process's end, `source` is asked
    /// once how much it holds.
    pub(crate) async fn is_over(&mut self, source: &PipeEnd) -> bool {
        if self.has_begun() && !self.measured {
            self.measured = true;
            let asking = source.call(|pipe| rustix::pipe::fcntl_getpipe_size(pipe));
            // A terminal has no such size.
            if let Some(Ok(Ok(bytes))) = self.wait_for_call(asking).await {
                self.pipe_bytes = self.pipe_bytes.max(bytes);
            }
        }
        self.has_passed()
    }

    /// Returns true after the process's end.
    fn has_begun(&mut self) -> bool {
        if self.deadline.is_none() && *self.ended.borrow() {
            self.deadline = Some(Deadline::from_now());
        }
        self.deadline.is_some()
    }

    fn has_passed(&mut self) -> bool {
        self.has_begun();
        self.deadline.is_some_and(|deadline| Instant::now() >= deadline.silent)
            && self.after_end >= self.pipe_bytes
    }

    /// Counts received bytes.
    pub(crate) fn saw(&mut self, count: usize) {
        if let Some(deadline) = self.deadline {
            self.after_end += count;
            self.deadline = Some(deadline.extended());
        }
    }

    /// Waits for `bytes`. Returns `None` when the process has ended and the time after its end is over.
    pub(crate) async fn wait<T>(&mut self, bytes: impl Future<Output = T>) -> Option<T> {
        tokio::pin!(bytes);
        if self.deadline.is_none() {
            tokio::select! {
                biased;
                found = &mut bytes => return Some(found),
                // The sender is dropped with the process, so this is an end, too.
                _ = self.ended.wait_for(|ended| *ended) => {}
            }
        }
        let deadline = *self.deadline.get_or_insert_with(Deadline::from_now);
        // Available bytes are taken even after the deadline.
        tokio::time::timeout_at(deadline.silent, bytes).await.ok()
    }

    /// Waits for a call on the stream's pipe. Returns `None` when the process has ended and another process
    /// holds the pipe.
    pub(crate) async fn wait_for_call<T>(&self, call: impl Future<Output = T>) -> Option<T> {
        tokio::pin!(call);
        let mut ended = self.ended.clone();
        tokio::select! {
            biased;
            done = &mut call => return Some(done),
            // The sender is dropped with the process, so this is an end, too.
            _ = ended.wait_for(|ended| *ended) => {}
        }
        tokio::time::timeout(CALL, call).await.ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Milliseconds of reading a stream after the process's end. `count` bytes arrive each `pause`.
    async fn read_for(pause: Duration, count: usize) -> u128 {
        let (end, ended) = watch::channel(false);
        let mut grace = Grace::new(ended, 4);
        end.send(true).unwrap();
        let start = Instant::now();
        while !grace.has_passed() && grace.wait(tokio::time::sleep(pause)).await.is_some() {
            grace.saw(count);
        }
        start.elapsed().as_millis()
    }

    #[tokio::test(start_paused = true)]
    async fn a_silent_stream_is_read_a_little_after_the_end() {
        assert_eq!(read_for(Duration::from_secs(3600), 1).await, 200);
    }

    #[tokio::test(start_paused = true)]
    async fn a_stream_with_bytes_is_read_longer_and_not_for_ever() {
        assert_eq!(read_for(Duration::from_millis(150), 1).await, 2000);
        // A stream with pauses longer than the grace ends at its first pause.
        assert_eq!(read_for(Duration::from_millis(250), 1).await, 200);
    }

    #[tokio::test]
    async fn a_pipe_that_the_process_enlarged_counts_whole() {
        let (reader, writer) = std::io::pipe().unwrap();
        rustix::pipe::fcntl_setpipe_size(&writer, 1 << 20).unwrap();
        let source = PipeEnd::new(reader.into()).unwrap();
        let (end, ended) = watch::channel(false);
        let mut grace = Grace::new(ended, 4);
        assert!(!grace.is_over(&source).await);
        assert_eq!(grace.pipe_bytes, 4, "it is asked at the end, not before");
        end.send(true).unwrap();
        assert!(!grace.is_over(&source).await);
        assert_eq!(grace.pipe_bytes, 1 << 20);
    }

    #[tokio::test(start_paused = true)]
    async fn what_the_pipe_may_hold_is_taken_after_the_deadline() {
        // Bytes available at once, fewer than the pipe's capacity: all are taken.
        let (end, ended) = watch::channel(false);
        let mut grace = Grace::new(ended, 4);
        end.send(true).unwrap();
        assert!(!grace.has_passed());
        tokio::time::advance(Duration::from_secs(10)).await;
        grace.saw(3);
        assert!(!grace.has_passed());
        assert_eq!(grace.wait(async { 1 }).await, Some(1));
        grace.saw(1);
        assert!(grace.has_passed());
    }
}
