//! How much a VMM may send without a request. The VMM may be in its guest's control. Decoding a packet costs
//! the daemon much more than sending it costs the VMM, and the pod's quota bounds the VMM alone.
//!
//! A well-behaved VMM sends a short event for each stream of its guest to a socket of the node (64 in a row,
//! then 16 a second), for each resize and each change of full disks, and one long report at its end.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

/// Most units in a row after a quiet time. All events of a well-behaved VMM and its last report are fewer.
const ROW: u32 = 512;

/// Time for one more unit.
const EVERY: Duration = Duration::from_millis(16);

/// Bytes of a packet for each unit after its first.
const UNIT_BYTES: usize = 4096;

/// See the module.
#[derive(Debug)]
pub(crate) struct Allowance(Mutex<Left>);

#[derive(Debug)]
struct Left {
    units: u32,
    counted: Option<Instant>,
}

/// Units of a packet of so many bytes.
fn units(bytes: usize) -> u32 {
    u32::try_from(bytes / UNIT_BYTES).unwrap_or(u32::MAX).saturating_add(1)
}

impl Allowance {
    pub(crate) fn new() -> Allowance {
        Allowance(Mutex::new(Left { units: ROW, counted: None }))
    }

    /// Takes a packet of so many bytes. Returns true if the VMM may send it.
    pub(crate) fn take(&self, bytes: usize) -> bool {
        let mut left = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        left.count(Instant::now());
        let rest = left.units.checked_sub(units(bytes));
        left.units = rest.unwrap_or(0);
        rest.is_some()
    }

    /// Gives a packet back: it was the answer to a request.
    pub(crate) fn give_back(&self, bytes: usize) {
        let mut left = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        left.units = left.units.saturating_add(units(bytes)).min(ROW);
    }
}

impl Left {
    /// Adds the units for the elapsed time. The begun part of the next interval counts later.
    fn count(&mut self, now: Instant) {
        let counted = *self.counted.get_or_insert(now);
        let gone_by = now.saturating_duration_since(counted);
        let more = u32::try_from(gone_by.as_nanos() / EVERY.as_nanos()).unwrap_or(u32::MAX);
        self.units = self.units.saturating_add(more).min(ROW);
        self.counted = counted.checked_add(EVERY.saturating_mul(more)).or(Some(now));
    }
}

#[cfg(test)]
mod tests {
    use proto_vmm::PACKET_BYTES_MAX;

    use super::*;

    /// How many packets of so many bytes are left.
    fn left(allowance: &Allowance, bytes: usize) -> u32 {
        (0..).find(|_| !allowance.take(bytes)).unwrap_or(u32::MAX)
    }

    #[tokio::test(start_paused = true)]
    async fn long_packets_are_fewer_than_short_ones_and_time_brings_more() {
        assert_eq!(left(&Allowance::new(), 100), ROW);
        let allowance = Allowance::new();
        assert_eq!(left(&allowance, PACKET_BYTES_MAX), 10);
        tokio::time::advance(Duration::from_secs(1)).await;
        assert_eq!(left(&allowance, 100), 62);
        tokio::time::advance(Duration::from_secs(3600)).await;
        assert_eq!(left(&allowance, 100), ROW);
    }

    #[tokio::test(start_paused = true)]
    async fn answers_use_nothing_up() {
        let allowance = Allowance::new();
        for _ in 0..10 * ROW {
            assert!(allowance.take(PACKET_BYTES_MAX));
            allowance.give_back(PACKET_BYTES_MAX);
        }
        assert_eq!(left(&allowance, 100), ROW);
    }
}
