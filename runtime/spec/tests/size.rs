//! The ledger: a VM's size as pods and containers ask.

#![allow(clippy::unwrap_used, reason = "in a test an unwrap is an assertion, in its functions too")]

use proptest::prelude::*;
use runtime_spec::{HandlerConfig, Ledger, MEMORY_GRAIN, PodSpec, Resources, VmBounds};

const MIB: u64 = 1 << 20;

fn limits(memory_mib: i64, quota: i64) -> Resources {
    Resources {
        memory_limit_bytes: memory_mib << 20,
        cpu_quota: quota,
        cpu_period: 100_000,
        ..Resources::default()
    }
}

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

fn handler() -> HandlerConfig {
    HandlerConfig {
        memory_default: 256 * MIB,
        memory_max: 2048 * MIB,
        vcpus_max: 4,
        ..HandlerConfig::default()
    }
}

fn bounds(pod: &PodSpec) -> VmBounds {
    VmBounds::of(pod, &handler()).unwrap()
}

/// Memory in MiB and vCPUs with these containers.
fn size(pod: &PodSpec, containers: &[Resources]) -> (u64, u8) {
    let names = ["a", "b", "c"];
    let named = names.into_iter().zip(containers);
    let ledger = Ledger::draw(&bounds(pod), pod.resources.as_ref(), pod.overhead.as_ref(), named);
    assert_eq!(ledger.containers.len(), containers.len());
    (ledger.size.memory_bytes / MIB, ledger.size.vcpus)
}

#[test]
fn a_vm_boots_with_the_pods_limit_and_its_overhead() {
    let boot = |pod: &PodSpec| bounds(pod).boot;
    let mib = |pod: &PodSpec| boot(pod).memory_bytes / MIB;
    assert_eq!(mib(&PodSpec::default()), 256 + 48);
    assert_eq!(mib(&pod(128 << 20, 0, 0)), 128 + 48);
    assert_eq!(mib(&pod(128 << 20, 30 << 20, 0)), 158);
    assert_eq!(mib(&pod(1 << 20, 1 << 20, 0)), 64);
    assert_eq!(mib(&pod((128 << 20) + 1, 30 << 20, 0)), 160);
    assert_eq!(mib(&pod(-1, 0, 0)), 256 + 48);
    assert_eq!(boot(&PodSpec::default()).vcpus, 4);
    assert_eq!(boot(&pod(0, 0, 150_000)).vcpus, 2);
    assert_eq!(boot(&pod(0, 0, 1)).vcpus, 1);
    assert_eq!(boot(&pod(0, 0, 99_000_000)).vcpus, 4);
}

#[test]
fn a_pod_beyond_its_handler_is_refused_with_both_numbers() {
    let error = VmBounds::of(&pod(2048 << 20, 2 << 20, 0), &handler()).unwrap_err().to_string();
    assert!(error.contains("2050 MiB") && error.contains("2048 MiB"), "{error}");
    assert_eq!(bounds(&pod(2046 << 20, 2 << 20, 0)).boot, bounds(&PodSpec::default()).most);
}

#[test]
fn in_a_pod_without_a_limit_containers_add_up() {
    let silent = PodSpec::default();
    assert_eq!(size(&silent, &[]).0, 304);
    assert_eq!(size(&silent, &[limits(100, 0)]).0, 304);
    assert_eq!(size(&silent, &[limits(200, 0), limits(300, 0)]).0, 548);
    assert_eq!(size(&silent, &[limits(0, 0)]).0, 304);
    assert_eq!(size(&silent, &[limits(0, 0), limits(100, 0), limits(-1, 0)]).0, 404);
}

#[test]
fn in_a_pod_with_a_limit_only_what_it_left_out_is_added() {
    let limited = pod(200 << 20, 30 << 20, 0);
    assert_eq!(size(&limited, &[limits(100, 0), limits(100, 0)]).0, 230);
    assert_eq!(size(&limited, &[limits(200, 0), limits(200, 0)]).0, 230);
    assert_eq!(size(&limited, &[limits(300, 0)]).0, 330);
    assert_eq!(size(&limited, &[limits(100, 0), limits(0, 0)]).0, 486);
}

#[test]
fn vcpus_follow_quotas_where_all_have_one() {
    let limited = pod(0, 0, 150_000);
    assert_eq!(size(&limited, &[]).1, 2);
    assert_eq!(size(&limited, &[limits(0, 50_000), limits(0, 100_000)]).1, 2);
    assert_eq!(size(&limited, &[limits(0, 250_000)]).1, 3);
    assert_eq!(size(&limited, &[limits(0, 50_000), limits(0, 0)]).1, 4);
    assert_eq!(size(&PodSpec::default(), &[limits(0, 50_000)]).1, 4);
}

#[test]
fn memory_that_a_vm_can_never_have_is_refused_by_the_field() {
    let pod = pod(100 << 20, 0, 0);
    let large = limits(4096, 0);
    let ledger = Ledger::draw(&bounds(&pod), pod.resources.as_ref(), None, [("c", &large)]);
    let error = ledger.check("resources.memory_limit_in_bytes").unwrap_err().to_string();
    assert!(error.contains("memory_limit_in_bytes") && error.contains("4144 MiB"), "{error}");
}

proptest! {
    #[test]
    fn any_request_gives_a_vm_that_can_be_created(
        memory: i64, overhead: i64, quota: i64, default: u64, most: u64, vcpus: u8,
        container: i64, container_quota: i64,
    ) {
        let handler = HandlerConfig {
            memory_default: default, memory_max: most, vcpus_max: vcpus, ..HandlerConfig::default()
        };
        let pod = pod(memory, overhead, quota);
        let Ok(bounds) = VmBounds::of(&pod, &handler) else { return Ok(()) };
        prop_assert!(bounds.boot.memory_bytes <= bounds.most.memory_bytes);
        prop_assert!(bounds.boot.vcpus <= bounds.most.vcpus);
        let resources = Resources {
            memory_limit_bytes: container, cpu_quota: container_quota, ..Resources::default()
        };
        let draw = |list: &[&Resources]| {
            let named = list.iter().map(|resources| ("c", *resources));
            Ledger::draw(&bounds, pod.resources.as_ref(), pod.overhead.as_ref(), named)
        };
        let (empty, ledger) = (draw(&[]), draw(&[&resources]));
        prop_assert_eq!(empty.size, bounds.boot);
        prop_assert!(ledger.size.memory_bytes >= empty.size.memory_bytes);
        for size in [bounds.boot, bounds.most, ledger.size] {
            prop_assert!(size.memory_bytes.is_multiple_of(MEMORY_GRAIN));
            prop_assert!(size.memory_bytes >= 64 * MIB);
            prop_assert!((1..=64).contains(&size.vcpus));
        }
        prop_assert!(ledger.size.vcpus <= bounds.most.vcpus);
    }
}
