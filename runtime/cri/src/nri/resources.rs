//! Resources, both ways.

use std::collections::BTreeSet;

use proto_nri::nri::{
    HugepageLimit, LinuxCPU, LinuxMemory, LinuxPids, LinuxResources, OptionalInt64, OptionalUInt64,
};
use protobuf::MessageField;
use runtime_spec::{Hugepages, Resources};

/// Resources in the plugins' view. Unrequested ones are unset.
pub(super) fn resources_out(resources: &Resources) -> LinuxResources {
    let int =
        |value: i64| MessageField::from((value != 0).then(|| OptionalInt64 { value, ..Default::default() }));
    let unsigned = |value: i64| {
        let value = u64::try_from(value).ok().filter(|value| *value > 0);
        MessageField::from(value.map(|value| OptionalUInt64 { value, ..Default::default() }))
    };
    let memory = LinuxMemory {
        limit: int(resources.memory_limit_bytes),
        swap: int(resources.memory_swap_limit_bytes),
        ..Default::default()
    };
    let cpu = LinuxCPU {
        shares: unsigned(resources.cpu_shares),
        quota: int(resources.cpu_quota),
        period: unsigned(resources.cpu_period),
        cpus: resources.cpuset_cpus.clone(),
        mems: resources.cpuset_mems.clone(),
        ..Default::default()
    };
    let pids =
        (resources.pids_limit != 0).then(|| LinuxPids { limit: resources.pids_limit, ..Default::default() });
    let pages = resources.hugepages.iter().map(|pages| HugepageLimit {
        page_size: pages.page_size.clone(),
        limit: pages.limit_bytes,
        ..Default::default()
    });
    LinuxResources {
        memory: Some(memory).into(),
        cpu: Some(cpu).into(),
        hugepage_limits: pages.collect(),
        unified: resources.unified.clone().into_iter().collect(),
        pids: pids.into(),
        ..Default::default()
    }
}

/// Resources requested by plugins, and those of their fields that are impossible for a container in a VM.
pub(super) fn resources_in(asked: &LinuxResources) -> (Resources, BTreeSet<&'static str>) {
    let int = |value: &MessageField<OptionalInt64>| value.as_ref().map_or(0, |value| value.value);
    let unsigned = |value: &MessageField<OptionalUInt64>| {
        value.as_ref().map_or(0, |value| i64::try_from(value.value).unwrap_or(i64::MAX))
    };
    let LinuxResources { memory, cpu, .. } = asked;
    let mut unified: std::collections::BTreeMap<_, _> = asked.unified.clone().into_iter().collect();
    // In cgroup v2 a reservation is memory reclaimed last, as in the OCI runtimes.
    if let Some(reservation) = memory.reservation.as_ref() {
        unified.entry("memory.low".to_owned()).or_insert_with(|| reservation.value.max(0).to_string());
    }
    let pages = asked
        .hugepage_limits
        .iter()
        .map(|pages| Hugepages { page_size: pages.page_size.clone(), limit_bytes: pages.limit });
    let resources = Resources {
        cpu_shares: unsigned(&cpu.shares),
        cpu_quota: int(&cpu.quota),
        cpu_period: unsigned(&cpu.period),
        memory_limit_bytes: int(&memory.limit),
        memory_swap_limit_bytes: int(&memory.swap),
        pids_limit: asked.pids.as_ref().map_or(0, |pids| pids.limit),
        cpuset_cpus: cpu.cpus.clone(),
        cpuset_mems: cpu.mems.clone(),
        oom_score_adj: 0,
        unified,
        hugepages: pages.collect(),
    };
    (resources, unsupported(asked))
}

fn unsupported(asked: &LinuxResources) -> BTreeSet<&'static str> {
    let LinuxResources { memory, cpu, .. } = asked;
    let set = [
        (memory.kernel.is_some(), "linux.resources.memory.kernel"),
        (memory.kernel_tcp.is_some(), "linux.resources.memory.kernel_tcp"),
        (memory.swappiness.is_some(), "linux.resources.memory.swappiness"),
        (memory.disable_oom_killer.is_some(), "linux.resources.memory.disable_oom_killer"),
        (memory.use_hierarchy.is_some(), "linux.resources.memory.use_hierarchy"),
        (cpu.realtime_runtime.is_some(), "linux.resources.cpu.realtime_runtime"),
        (cpu.realtime_period.is_some(), "linux.resources.cpu.realtime_period"),
        // An empty class counts as none.
        (!asked.blockio_class.value.is_empty(), "linux.resources.blockio_class"),
        (!asked.rdt_class.value.is_empty(), "linux.resources.rdt_class"),
        (!asked.devices.is_empty(), "linux.resources.devices"),
    ];
    set.into_iter().filter_map(|(is_set, field)| is_set.then_some(field)).collect()
}

#[cfg(test)]
mod tests {
    use proto_nri::nri::OptionalString;

    use super::*;

    #[test]
    fn resources_are_the_same_after_both_ways() {
        let resources = Resources {
            cpu_shares: 512,
            cpu_quota: -1,
            cpu_period: 100_000,
            memory_limit_bytes: 1 << 20,
            memory_swap_limit_bytes: 1 << 21,
            pids_limit: 7,
            cpuset_cpus: "0-1".into(),
            cpuset_mems: "0".into(),
            oom_score_adj: 0,
            unified: [("memory.high".to_owned(), "max".to_owned())].into(),
            hugepages: vec![Hugepages { page_size: "2MB".into(), limit_bytes: 0 }],
        };
        let (back, unsupported) = resources_in(&resources_out(&resources));
        assert_eq!((back, unsupported), (resources, BTreeSet::new()));
        let nothing = resources_in(&resources_out(&Resources::default())).0;
        assert_eq!(nothing, Resources::default());
    }

    #[test]
    fn a_reservation_is_memory_that_is_taken_last_and_classes_are_unsupported() {
        let mut asked = LinuxResources::new();
        let value = OptionalInt64 { value: 4096, ..Default::default() };
        asked.memory.mut_or_insert_default().reservation = Some(value).into();
        asked.blockio_class = Some(OptionalString { value: "fast".into(), ..Default::default() }).into();
        asked.rdt_class = Some(OptionalString::new()).into();
        let (resources, unsupported) = resources_in(&asked);
        assert_eq!(resources.unified["memory.low"], "4096");
        assert_eq!(unsupported, BTreeSet::from(["linux.resources.blockio_class"]));
    }
}
