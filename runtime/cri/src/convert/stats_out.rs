//! Usage to `ContainerStats` and `PodSandboxStats`.

use std::path::Path;

use proto_cri::v1;
use runtime_pod::{
    ContainerUsage, ContainerView, CpuUsage, GuestUsage, HostUsage, InterfaceUsage, MemoryUsage, PodUsage,
    PodView, Pressure, Stall, WritableLayerUsage,
};

/// CNI's first interface of a pod, by the convention of all runtimes.
const DEFAULT_INTERFACE: &str = "eth0";

/// A container's usage and the time of its measurement. Without usage, only the container's attributes.
/// `disk` is on the file system of the writable layers.
pub(crate) fn container_stats(
    view: &ContainerView,
    figures: Option<(&ContainerUsage, i64)>,
    disk: &Path,
) -> v1::ContainerStats {
    let spec = &view.spec;
    let attributes = v1::ContainerAttributes {
        id: view.id.clone(),
        metadata: Some(v1::ContainerMetadata { name: spec.name.clone(), attempt: spec.attempt }),
        labels: spec.labels.clone(),
        annotations: spec.annotations.clone(),
    };
    let Some((usage, at_ns)) = figures else {
        return v1::ContainerStats { attributes: Some(attributes), ..Default::default() };
    };
    let limit = u64::try_from(view.resources.memory_limit_bytes).ok().filter(|&limit| limit > 0);
    v1::ContainerStats {
        attributes: Some(attributes),
        cpu: Some(cpu(&usage.cpu, at_ns)),
        memory: Some(memory(&usage.memory, limit, at_ns)),
        writable_layer: usage.writable_layer.map(|layer| writable_layer(layer, disk, at_ns)),
        swap: Some(v1::SwapUsage {
            timestamp: at_ns,
            // A guest has no swap.
            swap_available_bytes: value(0),
            swap_usage_bytes: value(usage.memory.swap),
        }),
        io: Some(v1::IoUsage { timestamp: at_ns, psi: usage.io_pressure.as_ref().map(psi) }),
    }
}

/// A running container whose guest has not answered: a time, and no values. Without the two messages a
/// kubelet takes them for zeros.
pub(crate) fn silent_container_stats(view: &ContainerView, at_ns: i64) -> v1::ContainerStats {
    v1::ContainerStats {
        cpu: Some(v1::CpuUsage { timestamp: at_ns, ..Default::default() }),
        memory: Some(v1::MemoryUsage { timestamp: at_ns, ..Default::default() }),
        ..container_stats(view, None, Path::new(""))
    }
}

/// A pod's usage: CPU and memory are those of the VM's cgroup on the host, network and processes the guest's.
pub(crate) fn pod_stats(
    pod: &PodView,
    usage: &PodUsage,
    containers: Vec<v1::ContainerStats>,
) -> v1::PodSandboxStats {
    let spec = &pod.spec;
    let HostUsage { at_ns, cpu: host_cpu, memory: host_memory, io_pressure } = &usage.host;
    let guest = usage.guest.as_deref();
    let linux = v1::LinuxPodSandboxStats {
        cpu: Some(cpu(host_cpu, *at_ns)),
        memory: Some(memory(host_memory, memory_limit(pod), *at_ns)),
        network: guest.map(network),
        process: guest.map(processes),
        containers,
        io: Some(v1::IoUsage { timestamp: *at_ns, psi: io_pressure.as_ref().map(psi) }),
    };
    v1::PodSandboxStats {
        attributes: Some(v1::PodSandboxAttributes {
            id: pod.id.clone(),
            metadata: Some(v1::PodSandboxMetadata {
                name: spec.name.clone(),
                uid: spec.uid.clone(),
                namespace: spec.namespace.clone(),
                attempt: spec.attempt,
            }),
            labels: spec.labels.clone(),
            annotations: spec.annotations.clone(),
        }),
        linux: Some(linux),
        windows: None,
    }
}

/// The limit of the pod's cgroup in bytes, for its containers and the overhead. `None` for no limit.
fn memory_limit(pod: &PodView) -> Option<u64> {
    let bytes = |resources: &Option<runtime_spec::Resources>| {
        resources.as_ref().and_then(|one| u64::try_from(one.memory_limit_bytes).ok()).filter(|&n| n > 0)
    };
    let containers = bytes(&pod.resources)?;
    Some(containers.saturating_add(bytes(&pod.overhead).unwrap_or(0)))
}

fn network(guest: &GuestUsage) -> v1::NetworkUsage {
    let first = guest.interfaces.iter().position(|one| one.name == DEFAULT_INTERFACE).unwrap_or(0);
    let others = guest.interfaces.iter().enumerate().filter(|(at, _)| *at != first);
    v1::NetworkUsage {
        timestamp: guest.at_ns,
        default_interface: guest.interfaces.get(first).map(interface),
        interfaces: others.map(|(_, one)| interface(one)).collect(),
    }
}

fn interface(usage: &InterfaceUsage) -> v1::NetworkInterfaceUsage {
    v1::NetworkInterfaceUsage {
        name: usage.name.clone(),
        rx_bytes: value(usage.rx_bytes),
        rx_errors: value(usage.rx_errors),
        tx_bytes: value(usage.tx_bytes),
        tx_errors: value(usage.tx_errors),
    }
}

fn processes(guest: &GuestUsage) -> v1::ProcessUsage {
    let counts = guest.containers.values().map(|container| container.tasks.processes);
    v1::ProcessUsage { timestamp: guest.at_ns, process_count: value(counts.fold(0, u64::saturating_add)) }
}

fn cpu(usage: &CpuUsage, at_ns: i64) -> v1::CpuUsage {
    v1::CpuUsage {
        timestamp: at_ns,
        usage_core_nano_seconds: value(usage.usage_ns),
        usage_nano_cores: usage.nano_cores.and_then(value),
        psi: usage.pressure.as_ref().map(psi),
    }
}

fn memory(usage: &MemoryUsage, limit: Option<u64>, at_ns: i64) -> v1::MemoryUsage {
    v1::MemoryUsage {
        timestamp: at_ns,
        working_set_bytes: value(usage.working_set()),
        available_bytes: limit.and_then(|limit| value(limit.saturating_sub(usage.working_set()))),
        usage_bytes: value(usage.usage),
        rss_bytes: value(usage.anon),
        page_faults: value(usage.page_faults),
        major_page_faults: value(usage.major_page_faults),
        psi: usage.pressure.as_ref().map(psi),
    }
}

fn writable_layer(usage: WritableLayerUsage, disk: &Path, at_ns: i64) -> v1::FilesystemUsage {
    v1::FilesystemUsage {
        timestamp: at_ns,
        fs_id: Some(v1::FilesystemIdentifier { mountpoint: disk.display().to_string() }),
        used_bytes: value(usage.bytes),
        inodes_used: value(usage.inodes),
    }
}

fn psi(pressure: &Pressure) -> v1::PsiStats {
    let line = |stall: &Stall| v1::PsiData {
        total: stall.total_ns,
        avg10: stall.avg10,
        avg60: stall.avg60,
        avg300: stall.avg300,
    };
    v1::PsiStats { full: Some(line(&pressure.full)), some: Some(line(&pressure.some)) }
}

fn value(value: u64) -> Option<v1::UInt64Value> {
    Some(v1::UInt64Value { value })
}

#[cfg(test)]
mod tests {
    use runtime_spec::{ContainerSpec, PodSpec, Resources};

    use super::*;

    fn view(limit: i64) -> ContainerView {
        let resources = Resources { memory_limit_bytes: limit, ..Default::default() };
        let before = Resources { memory_limit_bytes: 77, ..Default::default() };
        ContainerView {
            id: "c1".into(),
            pod_id: "p1".into(),
            // The limit is the one after an update.
            spec: ContainerSpec { name: "app".into(), resources: before, ..Default::default() },
            resources,
            ..Default::default()
        }
    }

    fn pod(spec: PodSpec) -> PodView {
        PodView { id: "p1".into(), spec, ..Default::default() }
    }

    fn memory_of(usage: u64, inactive_file: u64) -> MemoryUsage {
        MemoryUsage { usage, inactive_file, ..Default::default() }
    }

    #[test]
    fn available_is_what_the_limit_leaves_beyond_the_working_set() {
        let usage = ContainerUsage { memory: memory_of(100, 30), ..Default::default() };
        let memory =
            |limit| container_stats(&view(limit), Some((&usage, 5)), Path::new("/d")).memory.unwrap();
        assert_eq!(memory(500).working_set_bytes, value(70));
        assert_eq!(memory(500).available_bytes, value(430));
        assert_eq!(memory(50).available_bytes, value(0));
        assert_eq!(memory(0).available_bytes, None);
        assert_eq!(memory(-1).available_bytes, None);
    }

    #[test]
    fn a_container_without_figures_is_listed_by_name_alone() {
        let stats = container_stats(&view(0), None, Path::new("/d"));
        assert_eq!(stats.attributes.unwrap().metadata.unwrap().name, "app");
        assert!(stats.cpu.is_none() && stats.memory.is_none() && stats.writable_layer.is_none());
        let silent = silent_container_stats(&view(0), 7);
        let (cpu, memory) = (silent.cpu.unwrap(), silent.memory.unwrap());
        assert_eq!((cpu.timestamp, cpu.usage_core_nano_seconds), (7, None));
        assert_eq!((memory.timestamp, memory.working_set_bytes), (7, None));
        assert_eq!(silent.attributes.unwrap().metadata.unwrap().name, "app");
    }

    #[test]
    fn eth0_is_the_default_interface_and_else_the_first() {
        let named = |name: &str| InterfaceUsage { name: name.into(), ..Default::default() };
        let of = |names: &[&str]| {
            let interfaces = names.iter().map(|name| named(name)).collect();
            network(&GuestUsage { interfaces, ..Default::default() })
        };
        let usage = of(&["net1", "eth0", "net2"]);
        assert_eq!(usage.default_interface.unwrap().name, "eth0");
        let others: Vec<_> = usage.interfaces.iter().map(|one| one.name.as_str()).collect();
        assert_eq!(others, ["net1", "net2"]);
        assert_eq!(of(&["net1", "net2"]).default_interface.unwrap().name, "net1");
        assert_eq!(of(&[]).default_interface, None);
    }

    #[test]
    fn a_pods_figures_are_the_vms_and_do_not_overflow() {
        let huge = ContainerUsage {
            tasks: runtime_pod::TaskUsage { processes: u64::MAX, ..Default::default() },
            ..Default::default()
        };
        let containers = [("c1".to_owned(), huge.clone()), ("c2".to_owned(), huge)].into();
        let guest = GuestUsage { at_ns: 3, containers, ..Default::default() };
        let host = HostUsage { at_ns: 9, memory: memory_of(1000, 0), ..Default::default() };
        let usage = PodUsage { pod_id: "p1".into(), host, guest: Some(guest.into()) };
        let limited = |bytes| Some(Resources { memory_limit_bytes: bytes, ..Default::default() });
        let spec = PodSpec { resources: limited(77), ..Default::default() };
        let pod = PodView { resources: limited(5000), overhead: limited(500), ..pod(spec) };
        let linux = pod_stats(&pod, &usage, Vec::new()).linux.unwrap();
        assert_eq!(linux.process.unwrap().process_count, value(u64::MAX));
        let memory = linux.memory.unwrap();
        assert_eq!((memory.timestamp, memory.available_bytes), (9, value(4500)));
    }
}
