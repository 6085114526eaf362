//! The overhead of pods for a RuntimeClass: enough for every pod up to its size, by the daemon's own
//! calculation.

use proptest::prelude::*;
use runtime_spec::{HandlerConfig, MEMORY_GRAIN, PodSpec, Resources, Shortage, VmCost, VmCosts};

const MIB: u64 = 1 << 20;

/// The shortage in the cgroup made by the kubelet for a pod of a class with this overhead, in MiB.
fn missing_mib(limit: u64, overhead: u64) -> u64 {
    let bytes = |bytes: u64| {
        let memory_limit_bytes = i64::try_from(bytes).unwrap_or(i64::MAX);
        Some(Resources { memory_limit_bytes, ..Resources::default() })
    };
    let pod = PodSpec { resources: bytes(limit), overhead: bytes(overhead), ..PodSpec::default() };
    Shortage::of(&pod, &HandlerConfig::default(), limit + overhead)
        .map_or(0, |short| short.missing_mib().max(1))
}

#[test]
fn the_counted_costs_are_those_of_the_documents() {
    let VmCosts { guest, vmm } = VmCosts::COUNTED;
    assert_eq!((guest.constant_bytes, guest.bytes_per_mib), (52 * MIB, MIB / 64));
    assert_eq!((vmm.constant_bytes, vmm.bytes_per_mib), (16 * MIB, MIB / 256));
    let mib = |size: u64| VmCosts::COUNTED.overhead(size * MIB).total_bytes().div_ceil(MIB);
    assert_eq!([mib(512), mib(4096), mib(32 << 10)], [82, 153, 722]);
}

#[test]
fn points_on_a_line_give_the_line() {
    let line = VmCost { constant_bytes: 24 * MIB, bytes_per_mib: 20_000 };
    let points = [128, 512, 1024].map(|mib| (mib * MIB, line.of(mib * MIB)));
    assert_eq!(VmCost::holding(&points, 0), line);
    assert_eq!(VmCost::holding(&[], 7), VmCost { constant_bytes: 0, bytes_per_mib: 7 });
    let flat = VmCost::holding(&[(128 * MIB, 9 * MIB), (256 * MIB, 8 * MIB)], 0);
    assert_eq!(flat, VmCost { constant_bytes: 9 * MIB, bytes_per_mib: 0 });
}

proptest! {
    #[test]
    fn an_overhead_is_enough_for_every_pod_up_to_its_size(
        size in MIB..(64 << 30),
        smaller in 0.0..=1.0_f64,
    ) {
        let overhead = VmCosts::COUNTED.overhead(size).total_bytes();
        let pod = ((size as f64 * smaller) as u64).max(MIB);
        prop_assert_eq!(missing_mib(pod, overhead), 0, "a pod of {} in a class for {}", pod, size);
        prop_assert_eq!(missing_mib(size, overhead), 0);
    }

    #[test]
    fn an_overhead_is_no_more_than_rounding_above_what_its_size_needs(size in (1_u64 << 30)..(64 << 30)) {
        let overhead = VmCosts::COUNTED.overhead(size).total_bytes();
        // A VM's memory comes in grains, and the overhead adds one for pods rounded up further.
        let less = overhead - 2 * (MEMORY_GRAIN + MIB);
        prop_assert!(missing_mib(size, less) > 0, "{} is enough for {}", less, size);
    }

    #[test]
    fn a_larger_pod_never_needs_less(
        size in MIB..(64 << 30),
        more in 0..(1_u64 << 30),
        constant in 0..(256 * MIB),
        share in 0..MIB,
    ) {
        let guest = VmCost { constant_bytes: constant, bytes_per_mib: share };
        let costs = VmCosts { guest, ..VmCosts::COUNTED };
        let total = |size| costs.overhead(size).total_bytes();
        prop_assert!(total(size + more) >= total(size));
        let dearer = VmCosts { guest: guest.plus(MIB), ..costs };
        prop_assert!(dearer.overhead(size).total_bytes() >= total(size));
    }

    #[test]
    fn a_cost_holds_every_point_that_it_was_made_from(
        points in prop::collection::vec((MIB..(64 << 30), 0..(1_u64 << 30)), 1..6),
        share_min in 0..(MIB / 16),
    ) {
        let cost = VmCost::holding(&points, share_min);
        prop_assert!(cost.bytes_per_mib >= share_min);
        for (memory, taken) in points {
            prop_assert!(cost.of(memory) >= taken, "{:?} for {} of {}", cost, taken, memory);
        }
    }

    #[test]
    fn no_figure_overflows(size: u64, constant: u64, share: u64, memory: u64, taken: u64) {
        let cost = VmCost { constant_bytes: constant, bytes_per_mib: share };
        let costs = VmCosts { guest: cost, vmm: cost };
        prop_assert!(costs.overhead(size).total_bytes() > 0);
        VmCost::holding(&[(memory, taken), (size, constant)], share);
    }
}
