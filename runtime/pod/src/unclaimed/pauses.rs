//! How long nothing is made after a VM without a pod could not be made. Pure.

use std::time::Duration;

/// Pause after the first failure, doubled with each further one up to the longest.
pub(crate) const FIRST: Duration = Duration::from_secs(60);
pub(crate) const LONGEST: Duration = Duration::from_secs(3600);

/// The pause after one more failure than `before`, all since the last success.
pub(crate) fn after(before: u32) -> Duration {
    FIRST.saturating_mul(1 << before.min(16)).min(LONGEST)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_up_to_an_hour() {
        assert_eq!(
            [0, 1, 2, 5, 6, u32::MAX].map(|before| after(before).as_secs()),
            [60, 120, 240, 1920, 3600, 3600]
        );
    }
}
