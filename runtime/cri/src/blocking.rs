//! Work that waits for a disk, beside the async threads. A few threads for each kind of disk, so that one which does not
//! answer keeps nobody else waiting.

use tokio::sync::Semaphore;

use crate::error::Failure;

/// The directory of images and scratch disks.
pub(crate) static STATE: Pool = Pool::new();

/// Configuration files of the node.
pub(crate) static NODE: Pool = Pool::new();

/// Threads of one pool. Further work waits without a thread.
const THREADS_MAX: usize = 8;

/// A bounded number of threads.
pub(crate) struct Pool(Semaphore);

impl Pool {
    const fn new() -> Pool {
        Pool(Semaphore::const_new(THREADS_MAX))
    }

    /// Runs `work` on a thread of the pool; `doing` is for the failure.
    pub(crate) async fn run<T: Send + 'static>(
        &'static self,
        doing: &'static str,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, Failure> {
        let permit = self.0.acquire().await.map_err(|_| Failure::Died(doing))?;
        let work = move || {
            let _permit = permit;
            work()
        };
        tokio::task::spawn_blocking(work).await.map_err(|_| Failure::Died(doing))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    #[tokio::test]
    async fn work_that_hangs_takes_no_more_than_the_threads_of_its_pool() {
        static HANGING: Pool = Pool::new();
        let (sender, begun) = mpsc::channel();
        let (release, hung) = std::sync::mpsc::channel::<()>();
        let hung = std::sync::Arc::new(std::sync::Mutex::new(hung));
        let hang = || {
            let (sender, hung) = (sender.clone(), hung.clone());
            tokio::spawn(HANGING.run("hanging", move || {
                let _ = sender.send(());
                let _ = hung.lock().unwrap().recv();
            }))
        };
        let calls: Vec<_> = (0..3 * THREADS_MAX).map(|_| hang()).collect();
        tokio::task::yield_now().await;
        let others = NODE.run("answering", move || {
            let first: Vec<()> = begun.iter().take(THREADS_MAX).collect();
            // Every thread of the pool has its work by now.
            (first.len(), begun.try_recv().is_ok())
        });
        assert_eq!(others.await.unwrap(), (THREADS_MAX, false));
        drop(release);
        for call in calls {
            call.await.unwrap().ok();
        }
    }
}
