//! Locks by name: one holder at a time per blob or image. Owns nothing but the locks.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use tokio::sync::OwnedMutexGuard;

/// The locks. Each exists while it is held or awaited.
#[derive(Debug, Default)]
pub(crate) struct Locks {
    by_name: Mutex<HashMap<String, Weak<tokio::sync::Mutex<()>>>>,
}

impl Locks {
    /// Waits for the lock of this name.
    pub(crate) async fn lock(&self, name: &str) -> OwnedMutexGuard<()> {
        self.named(name).lock_owned().await
    }

    /// Takes the lock of this name if it is free.
    pub(crate) fn try_lock(&self, name: &str) -> Option<OwnedMutexGuard<()>> {
        self.named(name).try_lock_owned().ok()
    }

    fn named(&self, name: &str) -> Arc<tokio::sync::Mutex<()>> {
        let mut by_name = self.by_name.lock().unwrap_or_else(PoisonError::into_inner);
        by_name.retain(|_, lock| lock.strong_count() > 0);
        let lock = by_name.get(name).and_then(Weak::upgrade).unwrap_or_default();
        by_name.insert(name.to_owned(), Arc::downgrade(&lock));
        lock
    }
}
