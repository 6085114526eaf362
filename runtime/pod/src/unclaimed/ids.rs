//! The ids of VMs without a pod. Nothing here makes or ends one.

use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};

/// Ids of the VMs without a pod. They count as being on record as long as this daemon runs.
#[derive(Debug, Default)]
pub(crate) struct UnclaimedIds(Mutex<BTreeSet<String>>);

impl UnclaimedIds {
    /// All of them.
    pub(crate) fn all(&self) -> Vec<String> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).iter().cloned().collect()
    }

    pub(super) fn insert(&self, id: &str) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(id.to_owned());
    }

    /// Forgets an id, given to a pod or no longer used.
    pub(crate) fn remove(&self, id: &str) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(id);
    }
}
