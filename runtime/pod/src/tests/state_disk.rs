//! The disk of the state, beside the real store: full, or with a fault at a commit.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use super::Script;
use super::script::COMMIT;
use crate::backend::BackendError;

/// A disk as its test wants it. A commit has two points, as a call of a backend has.
#[derive(Clone, Debug, Default)]
pub(crate) struct StateDisk {
    full: Arc<AtomicBool>,
    /// How long a sync takes, in milliseconds.
    sync_ms: Arc<AtomicU64>,
    /// Number of begun transactions.
    transactions: Arc<AtomicUsize>,
    script: Arc<Script>,
}

impl StateDisk {
    pub(crate) fn of(script: Arc<Script>) -> StateDisk {
        StateDisk { script, ..StateDisk::default() }
    }

    /// Lets the disk take no more changes, or take them again.
    pub(crate) fn fill(&self, full: bool) {
        self.full.store(full, Ordering::Release);
    }

    /// Has each sync take so long.
    pub(crate) fn slow_down(&self, sync: Duration) {
        self.sync_ms.store(u64::try_from(sync.as_millis()).unwrap(), Ordering::Release);
    }

    /// Number of begun transactions.
    pub(crate) fn transactions(&self) -> usize {
        self.transactions.load(Ordering::Acquire)
    }

    /// A transaction begins.
    pub(crate) async fn syncs(&self) {
        self.transactions.fetch_add(1, Ordering::AcqRel);
        let sync_ms = self.sync_ms.load(Ordering::Acquire);
        if sync_ms > 0 {
            tokio::time::sleep(Duration::from_millis(sync_ms)).await;
        }
    }

    /// A commit begins.
    pub(crate) async fn takes(&self) -> Result<(), BackendError> {
        if self.full.load(Ordering::Acquire) {
            return Err(BackendError::failed("the disk is full"));
        }
        self.script.point(COMMIT, false).await
    }

    /// A commit has come to its end.
    pub(crate) async fn has_taken(&self) -> Result<(), BackendError> {
        self.script.point(COMMIT, true).await
    }
}
