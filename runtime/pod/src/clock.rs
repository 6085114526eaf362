//! The time of day, and new ids.

use std::time::{SystemTime, UNIX_EPOCH};

/// Nanoseconds since the epoch.
pub(crate) fn now_ns() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_nanos()).unwrap_or(i64::MAX)
}

/// 64 random hex digits.
pub(crate) fn new_id() -> String {
    #[cfg(test)]
    if let Some(id) = repeatable::next_id() {
        return id;
    }
    hex::encode(rand::random::<[u8; 32]>())
}

/// Ids for reproducible tests. Recovery, for example, handles pods in the order of their ids.
#[cfg(test)]
pub(crate) mod repeatable {
    use std::cell::RefCell;

    use rand::rngs::StdRng;
    use rand::{Rng, SeedableRng};

    thread_local! {
        static IDS: RefCell<Option<StdRng>> = const { RefCell::new(None) };
    }

    /// Draws all ids of this thread from the seed from now on.
    pub(crate) fn seed(seed: u64) {
        IDS.set(Some(StdRng::seed_from_u64(seed)));
    }

    pub(super) fn next_id() -> Option<String> {
        IDS.with_borrow_mut(|ids| ids.as_mut().map(|ids| hex::encode(ids.random::<[u8; 32]>())))
    }
}
