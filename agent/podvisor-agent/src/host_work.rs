//! Work on the host's files, each piece on a separate thread. If a volume hangs on the host (because its NFS
//! server is gone), every thread touching it blocks in the kernel, and nothing can end it. The agent's only
//! serving thread must therefore never touch such a file.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Semaphore, oneshot};
use tokio::time::{Instant, timeout_at};

/// Most threads at a time, including hanging ones. Each takes some 20 KiB of the guest's memory.
const THREADS_MAX: usize = 16;
/// Stack of one thread. The work makes a few system calls.
const STACK_BYTES: usize = 128 * 1024;

/// Why a piece of work has no outcome. Hanging work may still complete later.
#[derive(Debug, thiserror::Error)]
pub(crate) enum HostWorkError {
    #[error("cannot {what}: the host's files did not answer within {} seconds", within.as_secs())]
    Hung { what: &'static str, within: Duration },
    #[error("cannot {what}: {THREADS_MAX} others already wait for the host's files, without an answer")]
    Full { what: &'static str },
    #[error("cannot {what}: there is no thread for it")]
    Thread { what: &'static str, source: io::Error },
}

/// The threads. Clones share the bound.
#[derive(Clone, Debug)]
pub(crate) struct HostWork {
    room: Arc<Semaphore>,
}

impl Default for HostWork {
    fn default() -> HostWork {
        HostWork { room: Arc::new(Semaphore::new(THREADS_MAX)) }
    }
}

impl HostWork {
    /// Does the work, and waits at most `within` for it. `what` completes "cannot …".
    pub(crate) async fn run<T: Send + 'static>(
        &self,
        what: &'static str,
        within: Duration,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, HostWorkError> {
        let deadline = Instant::now() + within;
        let place = timeout_at(deadline, Arc::clone(&self.room).acquire_owned()).await;
        // The semaphore is never closed.
        let Ok(Ok(place)) = place else { return Err(HostWorkError::Full { what }) };
        let (sender, outcome) = oneshot::channel();
        let thread = std::thread::Builder::new().name("host-work".into()).stack_size(STACK_BYTES);
        let started = thread.spawn(move || {
            let done = work();
            drop(place);
            // The caller may have stopped waiting.
            let _ = sender.send(done);
        });
        started.map_err(|source| HostWorkError::Thread { what, source })?;
        match timeout_at(deadline, outcome).await {
            Ok(Ok(done)) => Ok(done),
            // A panicking thread ends the agent, so the sender is never dropped.
            Ok(Err(_)) | Err(_) => Err(HostWorkError::Hung { what, within }),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    const WITHIN: Duration = Duration::from_secs(30);

    #[tokio::test]
    async fn the_outcome_of_work_comes_back() {
        let done = HostWork::default().run("count", WITHIN, || 7).await;
        assert_eq!(done.unwrap(), 7);
    }

    #[tokio::test(start_paused = true)]
    async fn work_that_hangs_is_given_up_and_frees_its_place_when_it_ends() {
        let host_work = HostWork::default();
        let (release, hang) = mpsc::channel::<()>();
        let mut hang = Some(hang);
        for _ in 0..THREADS_MAX {
            let before = hang.take();
            // The first waits for the test, the others wait for the first. Each holds its place.
            let (after, next) = mpsc::channel::<()>();
            let error = host_work
                .run("make a directory", WITHIN, move || {
                    let _ = before.map(|before| before.recv());
                    drop(after);
                })
                .await
                .unwrap_err();
            assert!(matches!(error, HostWorkError::Hung { .. }), "{error}");
            hang = Some(next);
        }
        let full = host_work.run("make a directory", WITHIN, || ()).await.unwrap_err();
        assert!(matches!(full, HostWorkError::Full { .. }), "{full}");
        assert!(full.to_string().starts_with("cannot make a directory: 16 others"), "{full}");
        drop(release);
        // All places are returned: each thread ends after the one before it.
        let all = u32::try_from(THREADS_MAX).unwrap();
        let _places = host_work.room.acquire_many(all).await.unwrap();
    }
}
