//! Counts of the devices of several VMs, by the kind of device. Pure.

use proto_vmm::{DeviceKind, DeviceStats};

/// Counts of all devices of one kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeviceCounts {
    /// The kind, as `net`.
    pub device: &'static str,
    /// Invalid requests and rings of guests.
    pub faults: u64,
    /// Lost frames for guests, because they did not fit a guest's buffers.
    pub dropped_received: u64,
    /// Lost frames of guests: they were invalid, or a tap refused them.
    pub dropped_sent: u64,
    /// Requests waiting or in progress, according to the guests' rings.
    pub queued: u64,
}

/// One entry for each kind, even without a device. Guests may choose some of the numbers, so sums saturate.
pub(crate) fn by_kind(devices: &[DeviceStats]) -> Vec<DeviceCounts> {
    let of = |kind: DeviceKind| {
        let sum = |of: fn(&DeviceStats) -> u64| {
            devices.iter().filter(|one| one.kind == kind).map(of).fold(0, u64::saturating_add)
        };
        DeviceCounts {
            device: kind.name(),
            faults: sum(|one| one.faults),
            dropped_received: sum(|one| one.dropped_received),
            dropped_sent: sum(|one| one.dropped_sent),
            queued: sum(|one| u64::from(one.queued)),
        }
    };
    DeviceKind::ALL.into_iter().map(of).collect()
}

#[cfg(test)]
mod tests {
    use proto_vmm::Slot;

    use super::*;

    fn stats(kind: DeviceKind, faults: u64, queued: u32) -> DeviceStats {
        DeviceStats { slot: Slot::ROOT, kind, faults, dropped_received: 2, dropped_sent: 3, queued }
    }

    #[test]
    fn devices_of_a_kind_are_one_sum_and_each_kind_has_one() {
        let all = [
            stats(DeviceKind::Net, 1, 4),
            stats(DeviceKind::Blk, u64::MAX, 2),
            stats(DeviceKind::Net, 10, 1),
            stats(DeviceKind::Blk, 1, 1),
        ];
        let counts = by_kind(&all);
        let of = |device| *counts.iter().find(|one| one.device == device).unwrap();
        assert_eq!((of("net").faults, of("blk").faults, of("rng").faults), (11, u64::MAX, 0));
        assert_eq!((of("net").queued, of("blk").queued, of("fs").queued), (5, 3, 0));
        assert_eq!((of("net").dropped_received, of("net").dropped_sent), (4, 6));
        assert_eq!(counts.len(), DeviceKind::ALL.len());
    }
}
