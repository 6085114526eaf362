//! The median of durations.

use std::time::Duration;

/// Sorts some durations and returns the middle one.
pub(crate) fn median(took: &mut [Duration]) -> Duration {
    took.sort_unstable();
    took[took.len() / 2]
}
