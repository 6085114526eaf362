//! Limits as files of a guest's cgroup.

use std::collections::BTreeMap;

use runtime_spec::{Resources, swap_together};

fn files(resources: &Resources) -> BTreeMap<String, String> {
    resources.cgroup_files().unwrap()
}

fn unified(file: &str, value: &str) -> Resources {
    Resources { unified: [(file.to_owned(), value.to_owned())].into(), ..Resources::default() }
}

#[test]
fn what_is_not_asked_is_not_written() {
    assert!(files(&Resources::default()).is_empty());
}

#[test]
fn each_limit_has_its_file() {
    let resources = Resources {
        cpu_shares: 1024,
        cpu_quota: 50_000,
        memory_limit_bytes: 64 << 20,
        memory_swap_limit_bytes: 80 << 20,
        pids_limit: 99,
        ..unified("memory.oom.group", "1")
    };
    let expected = [
        ("cpu.max", "50000 100000"),
        ("cpu.weight", "100"),
        ("memory.max", "67108864"),
        ("memory.oom.group", "1"),
        ("memory.swap.max", "16777216"),
        ("pids.max", "99"),
    ];
    let found = files(&resources);
    assert_eq!(found.iter().map(|(k, v)| (k.as_str(), v.as_str())).collect::<Vec<_>>(), expected);
}

#[test]
fn negative_limits_are_none_at_all() {
    let resources = Resources {
        cpu_quota: -1,
        memory_limit_bytes: -1,
        memory_swap_limit_bytes: -1,
        pids_limit: -1,
        ..Resources::default()
    };
    let found = files(&resources);
    assert_eq!(found["cpu.max"], "max 100000");
    for file in ["memory.max", "memory.swap.max", "pids.max"] {
        assert_eq!(found[file], "max");
    }
}

#[test]
fn a_file_named_by_the_caller_wins() {
    let resources = Resources { memory_limit_bytes: 64 << 20, ..unified("memory.max", "7340032") };
    assert_eq!(files(&resources)["memory.max"], "7340032");
}

#[test]
fn an_idle_container_has_no_weight() {
    let idle = |value: &str| files(&Resources { cpu_shares: 512, ..unified("cpu.idle", value) });
    for value in ["1", "1\n"] {
        assert_eq!(idle(value), [("cpu.idle".to_owned(), value.to_owned())].into());
    }
    assert_eq!(idle("0")["cpu.weight"], "59");
}

#[test]
fn containers_together_have_the_swap_of_each_if_each_is_bounded() {
    let (none, some) = (unified("memory.swap.max", "0"), unified("memory.swap.max", "1048576\n"));
    let typed = Resources { memory_limit_bytes: 64, memory_swap_limit_bytes: 80, ..Resources::default() };
    assert_eq!(swap_together([&none]), Some(0));
    assert_eq!(swap_together([&none, &some, &typed]), Some(1_048_592));
    for free in [Resources::default(), unified("memory.swap.max", "max"), unified("memory.swap.max", "1M")] {
        assert_eq!(swap_together([&none, &free]), None);
        assert_eq!(swap_together([&free, &none]), None);
    }
    assert_eq!(swap_together([]), None);
}

#[test]
fn what_the_kernel_would_refuse_is_refused_by_its_field() {
    let swap = |memory, both| Resources {
        memory_limit_bytes: memory,
        memory_swap_limit_bytes: both,
        ..Resources::default()
    };
    let cpu = |quota, period| Resources { cpu_quota: quota, cpu_period: period, ..Resources::default() };
    for (resources, field) in [
        (swap(0, 5), "memory_swap_limit_in_bytes"),
        (swap(-1, 5), "memory_swap_limit_in_bytes"),
        (swap(6, 5), "memory_swap_limit_in_bytes"),
        (cpu(999, 0), "cpu_quota"),
        (cpu(50_000, 999), "cpu_period"),
        (cpu(0, 1_000_001), "cpu_period"),
        (unified("cgroup.kill", "1"), "unified"),
        (unified("memory", "1"), "unified"),
        (unified("memory./../../cgroup.procs", "1"), "unified"),
        (unified("../memory.max", "1"), "unified"),
        (unified("memory..max", "1"), "unified"),
        (unified("", "1"), "unified"),
        (unified("memory.max", "1\0"), "unified"),
        (unified(&format!("memory.{}", "x".repeat(100)), "1"), "unified"),
    ] {
        let error = resources.cgroup_files().unwrap_err().to_string();
        assert!(error.contains(&format!("resources.{field}")), "{error}");
    }
}
