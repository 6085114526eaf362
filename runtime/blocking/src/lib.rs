//! Bounded pools of threads for work with no upper limit on its time, such as access to a frozen disk or to a
//! path on an unreachable server.
//!
//! ```text
//!   callers ──► a place in the pool ──► a thread of Tokio's ──► the disk
//!               (waits without a thread, up to a limit if the caller sets one)
//! ```
//!
//! Each thing with a risk of hanging has its own pool, so other work goes on. A thread in a system call
//! cannot be cancelled: abandoned work keeps its place until it returns. All pools of the daemon together
//! have fewer places than Tokio has blocking threads (512), so a place always gets a thread.

#![forbid(unsafe_code)]

mod parts;

use std::iter;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::runtime::{Handle, RuntimeFlavor};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, timeout_at};

pub use parts::Parts;

/// How long [`Pool::run`] waits for a place. After that time the disk counts as unresponsive.
const PLACE_WITHIN: Duration = Duration::from_secs(30);

/// Runs work that must begin and end on this thread, and may wait for a disk: the start of a process waits
/// until the kernel has read its program. Tasks of a worker thread go on with another one meanwhile.
///
/// Futures of the same task wait for the work.
pub fn in_place<T>(work: impl FnOnce() -> T) -> T {
    match Handle::try_current().map(|handle| handle.runtime_flavor()) {
        Ok(RuntimeFlavor::MultiThread) => tokio::task::block_in_place(work),
        // There is no other thread, or none that waits.
        _ => work(),
    }
}

/// A bounded number of threads. Clones are the same pool.
#[derive(Clone, Debug)]
pub struct Pool {
    waits_for: &'static str,
    places_max: usize,
    places: Arc<Semaphore>,
    /// The pool that this is a part of.
    outer: Option<Arc<Pool>>,
}

/// A place of a pool, taken.
#[derive(Debug)]
pub struct Place {
    waits_for: &'static str,
    permits: Vec<OwnedSemaphorePermit>,
}

/// The caller of work on a thread.
#[derive(Clone, Debug, Default)]
pub struct Caller(Arc<AtomicBool>);

impl Caller {
    /// Returns true if nobody waits for the work any more. Effects of the work before a false answer are
    /// there for everything the caller does after it has given up.
    #[must_use]
    pub fn has_given_up(&self) -> bool {
        self.0.load(Ordering::SeqCst)
    }
}

/// Why work was not done.
#[derive(Debug, thiserror::Error)]
pub enum PoolError {
    /// All threads of the pool have been busy for too long. The work was not begun.
    #[error("all {places} threads for {waits_for} have been waiting for {} s", PLACE_WITHIN.as_secs())]
    Full {
        /// Name of the disk, or of the other thing the threads wait for.
        waits_for: &'static str,
        /// Places of the pool.
        places: usize,
    },
    /// The work panicked, or the daemon is shutting down.
    #[error("a thread waiting for {0} ended before its work was done")]
    Died(&'static str),
}

impl Pool {
    /// A pool of at most `places_max` threads. `waits_for` names the thing that may hang, for errors.
    #[must_use]
    pub fn new(waits_for: &'static str, places_max: usize) -> Pool {
        Pool { waits_for, places_max, places: Arc::new(Semaphore::new(places_max)), outer: None }
    }

    /// Runs `work` on a thread of the pool. Dropping the call prevents work from starting, but does not stop
    /// running work.
    ///
    /// # Errors
    /// No place came free within 30 s, or the work panicked.
    pub async fn run<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, PoolError> {
        let until = Instant::now() + PLACE_WITHIN;
        let mut permits = Vec::new();
        for pool in self.levels() {
            let Ok(permit) = timeout_at(until, pool.permit()).await else {
                return Err(PoolError::Full { waits_for: pool.waits_for, places: pool.places_max });
            };
            permits.extend(permit);
        }
        Place { waits_for: self.waits_for, permits }.run(work).await
    }

    /// Waits for a place of this level alone.
    async fn permit(&self) -> Option<OwnedSemaphorePermit> {
        // The semaphore is never closed. If it were, an extra thread is better than lost work.
        self.places.clone().acquire_owned().await.ok()
    }

    /// This pool and the pools that it is a part of, from the inside.
    fn levels(&self) -> impl Iterator<Item = &Pool> {
        iter::successors(Some(self), |pool| pool.outer.as_deref())
    }

    /// Runs work as [`Pool::run`] does. The work can ask whether its caller still waits: a caller that drops
    /// the call has given up.
    ///
    /// # Errors
    /// See [`Pool::run`].
    pub async fn run_for<T: Send + 'static>(
        &self,
        work: impl FnOnce(Caller) -> T + Send + 'static,
    ) -> Result<T, PoolError> {
        struct Waiting(Caller);
        impl Drop for Waiting {
            fn drop(&mut self) {
                self.0.0.store(true, Ordering::SeqCst);
            }
        }
        let caller = Caller::default();
        let _waiting = Waiting(caller.clone());
        self.run(move || work(caller)).await
    }

    /// Waits for a place without a time limit.
    pub async fn place(&self) -> Place {
        let mut permits = Vec::new();
        for pool in self.levels() {
            permits.extend(pool.permit().await);
        }
        Place { waits_for: self.waits_for, permits }
    }
}

impl Place {
    /// Runs `work` on a thread of its own, as [`Pool::run`] does.
    ///
    /// # Errors
    /// The work panicked.
    pub async fn run<T: Send + 'static>(
        self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, PoolError> {
        let Place { waits_for, permits } = self;
        let work = move || {
            let answer = work();
            drop(permits);
            answer
        };
        tokio::task::spawn_blocking(work).await.map_err(|_| PoolError::Died(waits_for))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Mutex, mpsc};

    use super::*;

    #[tokio::test(flavor = "multi_thread", worker_threads = 1)]
    async fn other_tasks_go_on_while_work_is_done_in_place() {
        let (go_on, waiting) = mpsc::channel();
        let working = tokio::spawn(async move { in_place(|| waiting.recv()) });
        // On the one worker there is, behind the work.
        tokio::spawn(async move { go_on.send(7) }).await.unwrap().unwrap();
        assert_eq!(working.await.unwrap(), Ok(7));
    }

    #[tokio::test]
    async fn a_runtime_of_one_thread_does_the_work_itself() {
        assert_eq!(in_place(|| 7), 7);
    }

    const PLACES: usize = 4;

    /// A disk hanging until the sender is dropped, and the number of threads waiting for it.
    fn disk() -> (mpsc::Sender<()>, impl Fn() + Clone, mpsc::Receiver<()>) {
        let (thaw, frozen) = mpsc::channel::<()>();
        let frozen = Arc::new(Mutex::new(frozen));
        let (come, came) = mpsc::channel();
        let wait = move || {
            let _ = come.send(());
            let _ = frozen.lock().unwrap().recv();
        };
        (thaw, wait, came)
    }

    #[tokio::test]
    async fn work_that_hangs_takes_no_more_than_the_places_of_its_pool() {
        let (hanging, answering) = (Pool::new("a frozen disk", PLACES), Pool::new("another disk", 1));
        let (thaw, wait, came) = disk();
        let calls: Vec<_> = (0..3 * PLACES)
            .map(|_| {
                let (pool, wait) = (hanging.clone(), wait.clone());
                tokio::spawn(async move { pool.run(wait).await })
            })
            .collect();
        tokio::task::yield_now().await;
        let counted = answering.run(move || {
            let begun = came.iter().take(PLACES).count();
            // Every thread of the pool has its work by now.
            (begun, came.try_recv().is_ok())
        });
        assert_eq!(counted.await.unwrap(), (PLACES, false));
        drop(thaw);
        for call in calls {
            call.await.unwrap().unwrap();
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_full_pool_is_an_error_that_names_it_and_begins_no_work() {
        let pool = Pool::new("a frozen disk", 1);
        let (thaw, wait, came) = disk();
        let hanging = tokio::spawn({
            let pool = pool.clone();
            async move { pool.run(wait).await }
        });
        tokio::task::yield_now().await;
        came.recv().unwrap();
        let late = tokio::spawn({
            let pool = pool.clone();
            async move { pool.run(|| panic!("it is begun")).await }
        });
        tokio::task::yield_now().await;
        tokio::time::advance(PLACE_WITHIN + Duration::from_secs(1)).await;
        let error = late.await.unwrap().unwrap_err();
        assert_eq!(error.to_string(), "all 1 threads for a frozen disk have been waiting for 30 s");
        drop(thaw);
        hanging.await.unwrap().unwrap();
        assert_eq!(pool.run(|| 7).await.unwrap(), 7);
    }

    #[tokio::test]
    async fn work_learns_that_its_caller_has_given_up() {
        let pool = Pool::new("a disk", 1);
        let (thaw, wait, came) = disk();
        let (say, said) = mpsc::channel();
        let call = pool.run_for(move |caller| {
            let at_first = caller.has_given_up();
            wait();
            say.send((at_first, caller.has_given_up()))
        });
        let begun = tokio::task::spawn_blocking(move || came.recv());
        tokio::select! {
            _ = call => panic!("it waits for the disk"),
            begun = begun => begun.unwrap().unwrap(),
        }
        drop(thaw);
        assert_eq!(said.recv(), Ok((false, true)));
        assert!(!pool.run_for(|caller| caller.has_given_up()).await.unwrap());
    }

    #[tokio::test]
    async fn a_panic_is_an_error_and_gives_its_place_back() {
        let pool = Pool::new("a disk", 1);
        pool.run(|| panic!("as a test asks")).await.unwrap_err();
        assert_eq!(pool.run(|| 7).await.unwrap(), 7);
    }
}
