//! The ledger: a VM's size as pods and containers ask.

use proptest::prelude::*;
use runtime_spec::{
    HandlerConfig, Ledger, MEMORY_GRAIN, PodSpec, Resources, Shortage, TemplateScope, VmBounds,
    smallest_vm_on_the_node,
};

const MIB: u64 = 1 << 20;
/// Memory of a guest besides its containers, where a class names no overhead.
const GUEST: u64 = 52 * MIB;

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
    let ledger = Ledger::draw(&bounds(pod), pod.resources.as_ref(), pod.overhead.as_ref(), 0, named);
    assert_eq!(ledger.containers.len(), containers.len());
    (ledger.size.memory_bytes / MIB, ledger.size.vcpus)
}

/// Memory in MiB with images of so many MiB.
fn with_images(pod: &PodSpec, images: u64) -> u64 {
    let (resources, overhead) = (pod.resources.as_ref(), pod.overhead.as_ref());
    Ledger::draw(&bounds(pod), resources, overhead, images * MIB, []).size.memory_bytes / MIB
}

/// Bytes of page structures in a VM of `size` booted with `boot` (of less than 64 GiB): 1/64 of the boot
/// memory, and of each whole block added.
fn structs(boot: u64, size: u64) -> u64 {
    size.min(boot).div_ceil(64) + size.saturating_sub(boot).div_ceil(128 * MIB) * 2 * MIB
}

#[test]
fn a_pod_without_limits_takes_its_vm_and_its_vmm_on_the_node() {
    let on_the_node = |vm: u64| vm + vm.div_ceil(256) + 16 * MIB;
    let vm = VmBounds::of(&PodSpec::default(), &handler()).unwrap().boot.memory_bytes;
    assert_eq!(handler().pod_on_the_node(), on_the_node(vm));
    assert_eq!(smallest_vm_on_the_node(), on_the_node(64 * MIB));
    let none = HandlerConfig { memory_default: 0, ..handler() };
    assert_eq!(none.pod_on_the_node(), smallest_vm_on_the_node());
}

#[test]
fn a_vm_boots_with_the_pods_limit_its_overhead_and_page_structures_for_both() {
    let boot = |pod: &PodSpec| bounds(pod).boot;
    let mib = |pod: &PodSpec| boot(pod).memory_bytes / MIB;
    assert_eq!(mib(&PodSpec::default()), 314);
    assert_eq!(mib(&pod(128 << 20, 0, 0)), 184);
    assert_eq!(mib(&pod(128 << 20, 30 << 20, 0)), 162);
    assert_eq!(mib(&pod(1 << 20, 1 << 20, 0)), 64);
    assert_eq!(mib(&pod((129 << 20) + (1 << 19), 30 << 20, 0)), 164);
    assert_eq!(mib(&pod(-1, 0, 0)), 314);
    assert_eq!(boot(&PodSpec::default()).vcpus, 4);
    assert_eq!(boot(&pod(0, 0, 150_000)).vcpus, 2);
    assert_eq!(boot(&pod(0, 0, 1)).vcpus, 1);
    assert_eq!(boot(&pod(0, 0, 99_000_000)).vcpus, 4);
}

#[test]
fn a_pod_much_larger_than_its_handlers_template_starts_with_that_size_and_grows_to_its_own() {
    let handler = HandlerConfig { template: TemplateScope::Node, ..handler() };
    let of = |memory: u64| VmBounds::of(&pod(memory.cast_signed(), 0, 0), &handler).unwrap();
    let own = of(0).boot.memory_bytes;
    for (mib, starts_with_own) in [(64, false), (300, false), (380, false), (386, true), (1800, true)] {
        let (memory, bounds) = (mib * MIB, of(mib * MIB));
        assert_eq!(bounds.boot.memory_bytes == own, starts_with_own, "{mib}");
        let limits = limits(mib.cast_signed(), 0);
        let size = Ledger::draw(&bounds, Some(&limits), None, 0, [("one", &limits)]).size.memory_bytes;
        let free = size - structs(bounds.boot.memory_bytes, size);
        assert!(free >= memory + GUEST, "{mib}: {free}");
    }
}

#[test]
fn a_pod_beyond_its_handler_is_refused_with_both_numbers() {
    let error = VmBounds::of(&pod(2048 << 20, 2 << 20, 0), &handler()).unwrap_err().to_string();
    assert!(error.contains("2084 MiB") && error.contains("2048 MiB"), "{error}");
    assert_eq!(bounds(&pod(2014 << 20, 2 << 20, 0)).boot, bounds(&PodSpec::default()).most);
}

#[test]
fn in_a_pod_without_a_limit_containers_add_up() {
    let silent = PodSpec::default();
    assert_eq!(size(&silent, &[]).0, 314);
    assert_eq!(size(&silent, &[limits(100, 0)]).0, 314);
    assert_eq!(size(&silent, &[limits(200, 0), limits(300, 0)]).0, 562);
    assert_eq!(size(&silent, &[limits(0, 0)]).0, 314);
    assert_eq!(size(&silent, &[limits(0, 0), limits(100, 0), limits(-1, 0)]).0, 416);
}

#[test]
fn in_a_pod_with_a_limit_only_what_it_left_out_is_added() {
    let limited = pod(200 << 20, 30 << 20, 0);
    assert_eq!(size(&limited, &[limits(100, 0), limits(100, 0)]).0, 234);
    assert_eq!(size(&limited, &[limits(200, 0), limits(200, 0)]).0, 234);
    assert_eq!(size(&limited, &[limits(300, 0)]).0, 336);
    assert_eq!(size(&limited, &[limits(100, 0), limits(0, 0)]).0, 496);
}

#[test]
fn a_container_without_a_limit_takes_no_pod_beyond_its_handler() {
    let near = pod(1900 << 20, 30 << 20, 0);
    let draw = |pod: &PodSpec, containers: &[Resources]| {
        let named = ["a", "b"].into_iter().zip(containers);
        Ledger::draw(&bounds(pod), pod.resources.as_ref(), pod.overhead.as_ref(), 0, named)
    };
    for (pod, limit) in [(&near, 1900), (&PodSpec::default(), 1900)] {
        let ledger = draw(pod, &[limits(limit, 0), limits(0, 0)]);
        ledger.check("memory").unwrap();
        assert_eq!(ledger.size.memory_bytes / MIB, 2048);
        // A limit is no wish.
        assert!(draw(pod, &[limits(2100, 0), limits(0, 0)]).check("memory").is_err());
        assert!(draw(pod, &[limits(2100, 0)]).check("memory").is_err());
    }
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
fn vcpus_are_no_more_than_the_cpus_of_the_node_that_all_containers_have() {
    let on = |cpus: &str, quota| Resources { cpuset_cpus: cpus.into(), ..limits(0, quota) };
    // Without a quota, as a kubelet wants it for exclusive CPUs.
    let exclusive = pod(0, 0, -1);
    assert_eq!(size(&exclusive, &[]).1, 4);
    assert_eq!(size(&exclusive, &[on("2-3", -1)]).1, 2);
    assert_eq!(size(&exclusive, &[on("2", -1), on("3", -1)]).1, 2);
    assert_eq!(size(&exclusive, &[on("2-3", -1), on("3,7", -1)]).1, 3);
    assert_eq!(size(&exclusive, &[on("0-15", -1)]).1, 4);
    assert_eq!(size(&exclusive, &[on("2-3", -1), limits(0, -1)]).1, 4);
    let limited = pod(0, 0, 150_000);
    assert_eq!(size(&limited, &[on("0-2", 100_000)]).1, 2);
    assert_eq!(size(&limited, &[on("0", 100_000)]).1, 1);
}

#[test]
fn page_structures_of_images_beyond_the_overheads_are_added() {
    let limited = pod(200 << 20, 30 << 20, 0);
    assert_eq!([0, 100, 512].map(|images| with_images(&limited, images)), [234; 3]);
    // 56 MiB of structures; 2 MiB more for those of the added block.
    assert_eq!(with_images(&limited, 4096), 292);
    // Images alone take no pod beyond its handler's bound, nor are they refused.
    assert_eq!(with_images(&limited, 4096 * 1024), 2048);
}

#[test]
fn a_vm_is_no_larger_than_its_pods_cgroup_allows() {
    let pod = pod(256 << 20, 0, 0);
    let boot = |room: u64| bounds(&pod).within(Some(room * MIB)).boot.memory_bytes / MIB;
    assert_eq!(bounds(&pod).within(None), bounds(&pod));
    // 16 MiB for the VMM, and 1/256 of the VM for page tables.
    assert_eq!([1024, 332, 256, 100, 10].map(boot), [314, 314, 238, 82, 64]);
    let shortage = |room: u64| Shortage::of(&pod, &handler(), room * MIB);
    assert_eq!(shortage(332), None);
    let short = shortage(256).unwrap();
    assert_eq!((short.vm_bytes / MIB, short.needed_bytes / MIB, short.missing_mib()), (314, 331, 76));
    // An overhead with room for more than the guest's is no shortage.
    let roomy = PodSpec {
        overhead: Some(Resources { memory_limit_bytes: 80 << 20, ..Resources::default() }),
        ..pod.clone()
    };
    assert_eq!(Shortage::of(&roomy, &handler(), (256 + 80) * MIB), None);
}

#[test]
fn memory_that_a_vm_can_never_have_is_refused_by_the_field() {
    let pod = pod(100 << 20, 0, 0);
    let large = limits(4096, 0);
    let ledger = Ledger::draw(&bounds(&pod), pod.resources.as_ref(), None, 0, [("c", &large)]);
    let error = ledger.check("resources.memory_limit_in_bytes").unwrap_err().to_string();
    assert!(error.contains("memory_limit_in_bytes") && error.contains("4216 MiB"), "{error}");
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
            Ledger::draw(&bounds, pod.resources.as_ref(), pod.overhead.as_ref(), 0, named)
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

    /// The page structures of any VM and its images leave the containers' and the guest's memory intact, and
    /// no grain of memory is wasted.
    #[test]
    fn page_structures_take_nothing_from_containers(
        limit in 0u64..8192, overhead in 1u64..512, container in 0u64..8192, images in 0u64..65536, odd in 0u64..MIB,
    ) {
        let handler = HandlerConfig { memory_max: 64 << 30, ..handler() };
        let bytes = |mib: u64| i64::try_from(mib * MIB + if mib > 0 { odd } else { 0 }).unwrap();
        let pod = pod(bytes(limit), bytes(overhead), 0);
        let bounds = VmBounds::of(&pod, &handler).unwrap();
        let one = Resources { memory_limit_bytes: bytes(container), ..Resources::default() };
        let images = images * MIB;
        let (resources, overhead) = (pod.resources.as_ref(), pod.overhead.as_ref());
        let ledger = Ledger::draw(&bounds, resources, overhead, images, [("c", &one)]);
        let of_images = images.saturating_sub(512 * MIB).div_ceil(64);
        let (boot, size) = (bounds.boot.memory_bytes, ledger.size.memory_bytes);
        let wanted = ledger.containers_bytes + ledger.overhead_bytes + of_images;
        let left = |size| size - structs(boot, size);
        prop_assert!(left(size) >= wanted, "{} of {size}", left(size));
        prop_assert_eq!(ledger.page_structs_bytes, structs(boot, size) + of_images);
        prop_assert!(left(size - MEMORY_GRAIN) < wanted || size <= 64 * MIB, "{size} for {wanted}");
    }

    /// VM and VMM fit into any cgroup, unless no VM does, and the VM is the largest that fits.
    #[test]
    fn a_vm_fits_into_its_pods_cgroup(limit in 0i64..8192, container in 0i64..8192, room in 0u64..16384) {
        let pod = pod(limit << 20, 0, 0);
        let handler = HandlerConfig { memory_max: 64 << 30, ..handler() };
        let free = VmBounds::of(&pod, &handler).unwrap();
        let bounds = free.within(Some(room * MIB));
        let one = limits(container, 0);
        let draw = |bounds| Ledger::draw(bounds, pod.resources.as_ref(), None, 0, [("c", &one)]);
        let (ledger, unbound) = (draw(&bounds), draw(&VmBounds { room: None, ..bounds }));
        let on_the_node = |size: u64| size + size.div_ceil(256) + 16 * MIB;
        for (size, wanted) in [
            (bounds.boot.memory_bytes, free.boot.memory_bytes),
            (ledger.size.memory_bytes, unbound.size.memory_bytes),
        ] {
            prop_assert!(on_the_node(size) <= room * MIB || size == 64 * MIB, "{size}");
            prop_assert!(size == wanted || on_the_node(size + MEMORY_GRAIN) > room * MIB, "{size}");
        }
        prop_assert_eq!(ledger.wanted_bytes, unbound.size.memory_bytes);
    }
}
