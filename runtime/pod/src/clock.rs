//! The time of day, and new ids.

use std::time::{SystemTime, UNIX_EPOCH};

/// Nanoseconds since the epoch.
pub(crate) fn now_ns() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_nanos()).unwrap_or(i64::MAX)
}

/// 64 random hex digits.
pub(crate) fn new_id() -> String {
    hex::encode(rand::random::<[u8; 32]>())
}
