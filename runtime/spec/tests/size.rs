//! The machine's size.

use proptest::prelude::*;
use runtime_spec::{HandlerConfig, MEMORY_GRAIN, PodSpec, Resources, VmSize};

const MIB: u64 = 1 << 20;

fn pod(memory: i64, overhead: i64, quota: i64) -> PodSpec {
    let resources = Resources {
        memory_limit_bytes: memory,
        cpu_quota: quota,
        cpu_period: 100_000,
        ..Resources::default()
    };
    let overhead = Resources { memory_limit_bytes: overhead, ..Resources::default() };
    PodSpec { resources: Some(resources), overhead: Some(overhead), ..PodSpec::default() }
}

#[test]
fn sizes_follow_the_pods_resources() {
    let handler = HandlerConfig { memory_default: 256 * MIB, vcpus_max: 4, ..HandlerConfig::default() };
    let size = |pod: &PodSpec, cpus| VmSize::of(pod, &handler, cpus);
    let mib = |pod: &PodSpec| size(pod, 8).memory_bytes / MIB;
    assert_eq!(mib(&PodSpec::default()), 256 + 48);
    assert_eq!(mib(&pod(128 << 20, 0, 0)), 128 + 48);
    assert_eq!(mib(&pod(128 << 20, 30 << 20, 0)), 158);
    assert_eq!(mib(&pod(1 << 20, 1 << 20, 0)), 64);
    assert_eq!(mib(&pod((128 << 20) + 1, 30 << 20, 0)), 160);
    assert_eq!(mib(&pod(-1, 0, 0)), 256 + 48);
    assert_eq!(size(&PodSpec::default(), 8).vcpus, 4);
    assert_eq!(size(&PodSpec::default(), 2).vcpus, 2);
    assert_eq!(size(&pod(0, 0, 150_000), 8).vcpus, 2);
    assert_eq!(size(&pod(0, 0, 1), 8).vcpus, 1);
    assert_eq!(size(&pod(0, 0, 99_000_000), 8).vcpus, 4);
}

proptest! {
    #[test]
    fn whatever_is_asked_the_machine_can_be_made(
        memory: i64, overhead: i64, quota: i64, default: u64, most: u8, cpus in 0usize..1000,
    ) {
        let handler = HandlerConfig { memory_default: default, vcpus_max: most, ..HandlerConfig::default() };
        let size = VmSize::of(&pod(memory, overhead, quota), &handler, cpus);
        prop_assert!(size.memory_bytes.is_multiple_of(MEMORY_GRAIN));
        prop_assert!(size.memory_bytes >= 64 * MIB);
        prop_assert!((1..=64).contains(&size.vcpus));
    }
}
