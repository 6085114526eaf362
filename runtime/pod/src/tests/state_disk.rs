//! The disk of the state, beside the real store: full, or with a fault at a commit.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::Script;
use super::script::COMMIT;
use crate::backend::BackendError;

/// A disk as its test wants it. A commit has two points, as a call of a backend has.
#[derive(Clone, Debug, Default)]
pub(crate) struct StateDisk {
    full: Arc<AtomicBool>,
    script: Arc<Script>,
}

impl StateDisk {
    pub(crate) fn of(script: Arc<Script>) -> StateDisk {
        StateDisk { full: Arc::default(), script }
    }

    /// Lets the disk take no more changes, or take them again.
    pub(crate) fn fill(&self, full: bool) {
        self.full.store(full, Ordering::Release);
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
