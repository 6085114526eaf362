//! All that the agent knows of its pod, and the barrier before it: nothing is served until the host has
//! configured the pod, so that no two guests made from one template share names, addresses or
//! secrets.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio::sync::Mutex;

use crate::containers::Containers;
use crate::images::Images;
use crate::reaper::Reaper;
use crate::shared::Shared;

/// See the module's documentation.
#[derive(Debug, Default)]
pub(crate) struct Pod {
    pub(crate) reaper: Reaper,
    pub(crate) images: Images,
    pub(crate) containers: Containers,
    pub(crate) shared: Arc<Shared>,
    /// Held while usage is read.
    pub(crate) usage: Arc<Mutex<()>>,
    /// Held through configuration; true after it.
    pub(crate) configured: Mutex<bool>,
    numbers: AtomicU64,
}

impl Pod {
    /// A number that no one else gets, for the names of passing things.
    pub(crate) fn next_number(&self) -> u64 {
        self.numbers.fetch_add(1, Ordering::Relaxed)
    }
}
