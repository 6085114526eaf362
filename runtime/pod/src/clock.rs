//! The time of day, and new ids.

use std::time::{SystemTime, UNIX_EPOCH};

/// Nanoseconds since the epoch.
pub(crate) fn now_ns() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_nanos()).unwrap_or(i64::MAX)
}

/// The time now, but later than `newest`. A kubelet takes the newest of several attempts for the current one,
/// and the clock may have been set back since the earlier ones.
pub(crate) fn now_after(newest_ns: Option<i64>) -> i64 {
    after(now_ns(), newest_ns)
}

fn after(now_ns: i64, newest_ns: Option<i64>) -> i64 {
    newest_ns.map_or(now_ns, |newest_ns| now_ns.max(newest_ns.saturating_add(1)))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_new_attempt_is_the_newest_after_the_clock_was_set_back_too() {
        assert_eq!((after(50, None), after(50, Some(40)), after(50, Some(100))), (50, 50, 101));
        assert_eq!(after(50, Some(i64::MAX)), i64::MAX);
    }
}
