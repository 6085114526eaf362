//! The only writer of the store. It puts all waiting changes into one transaction: a hundred pods starting at
//! once on a slow disk wait for two of its syncs instead of a hundred.
//!
//! ```text
//!   commit ──► waits ─┐
//!   commit ──► waits ─┼─ the disk's thread is free ──► one transaction ──► all are answered
//!   commit ──► waits ─┘        (others wait meanwhile, and are the next one)
//! ```

use std::convert::Infallible;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use runtime_blocking::Pool;
use runtime_store::{Batch, Store};
use tokio::sync::oneshot;

use crate::blocking::blocking;
use crate::error::PodError;

/// The description of this work in errors.
pub(super) const DOING: &str = "writing down how far it is";

/// Work for the disk.
#[derive(Debug)]
pub(super) enum Work {
    Changes(Batch),
    /// The changes kept by the store.
    Kept,
    /// Nothing: just checks whether the disk accepts a transaction.
    Probe,
}

/// See the module. Cheap to clone.
#[derive(Clone, Debug)]
pub(super) struct Writer {
    store: Store,
    pool: Pool,
    queue: Arc<Mutex<Queue>>,
    /// The disk, as a test plays it.
    #[cfg(test)]
    pub(super) disk: crate::tests::StateDisk,
}

#[derive(Debug, Default)]
struct Queue {
    waiting: Vec<Waiting>,
    /// Whether a task writes.
    writes: bool,
}

#[derive(Debug)]
struct Waiting {
    work: Work,
    answer: Answer,
}

type Answer = oneshot::Sender<Result<bool, PodError>>;

impl Writer {
    pub(super) fn new(store: Store, pool: Pool) -> Writer {
        Writer {
            store,
            pool,
            queue: Arc::default(),
            #[cfg(test)]
            disk: crate::tests::StateDisk::default(),
        }
    }

    /// Returns once the work is on disk, and whether the disk accepted something for it. If the call is
    /// dropped before its transaction begins, nothing has changed.
    pub(super) async fn write(&self, work: Work) -> Result<bool, PodError> {
        let (answer, answered) = oneshot::channel();
        let work = match work {
            Work::Changes(batch) => Work::Changes(self.store.stamped(batch)),
            other => other,
        };
        let begin = {
            let mut queue = self.lock();
            queue.waiting.push(Waiting { work, answer });
            !std::mem::replace(&mut queue.writes, true)
        };
        if begin {
            tokio::spawn(self.clone().run());
        }
        answered.await.unwrap_or_else(|_| Err(PodError::internal(DOING)))
    }

    /// Writes until nothing waits.
    async fn run(self) {
        loop {
            #[cfg(test)]
            self.disk.syncs().await;
            let writer = self.clone();
            let written = blocking(&self.pool, DOING, move || Ok::<_, Infallible>(writer.write_all())).await;
            let mut queue = self.lock();
            let (answers, outcome) = match written {
                Ok(written) => written,
                Err(error) => (queue.waiting.drain(..).map(|one| one.answer).collect(), Err(error)),
            };
            for answer in answers {
                // If the caller has gone, it has undone the change, or is about to.
                let _ = answer.send(outcome.clone());
            }
            if queue.waiting.is_empty() {
                queue.writes = false;
                return;
            }
        }
    }

    /// Writes all waiting changes. Returns the waiting callers and their answer. Blocks on the disk.
    fn write_all(&self) -> (Vec<Answer>, Result<bool, PodError>) {
        let waiting = std::mem::take(&mut self.lock().waiting);
        let (mut batches, mut answers, mut probes) = (Vec::new(), Vec::new(), false);
        for Waiting { work, answer } in waiting {
            // If the caller has gone, it has undone the change, or is about to.
            if answer.is_closed() {
                continue;
            }
            match work {
                Work::Changes(batch) => batches.push(batch),
                Work::Kept => {}
                Work::Probe => probes = true,
            }
            answers.push(answer);
        }
        if answers.is_empty() {
            return (answers, Ok(false));
        }
        let probed = if probes { self.store.probe() } else { Ok(()) };
        let written = probed.and_then(|()| Ok(self.store.commit_all(batches)? || probes));
        let written = written.map_err(|error| PodError::internal(DOING).because(error));
        (answers, written)
    }

    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
