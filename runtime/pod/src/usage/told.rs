//! From what a guest tells to figures that readers may rely on: nothing that the guest chose is longer,
//! more or larger than a bound, names are plain and told once, and no sum overflows. Whether the
//! figures are true is the guest's affair; they are its own pod's.

use std::collections::{BTreeMap, HashSet};

use proto_agent::agent;

use super::{
    ContainerUsage, CpuUsage, DeviceUsage, FilesystemUsage, GuestUsage, HugepageUsage, InterfaceUsage,
    MemoryUsage, Pressure, Stall, TaskUsage, WritableLayerUsage,
};

/// Interfaces of a pod that are passed on, and disks and page sizes of a container: above what an
/// honest agent tells.
const ENTRIES_MAX: usize = 64;

/// Longest name of any of these, in bytes: a disk's `DISK_NAME_LEN` is the longest.
const NAME_BYTES_MAX: usize = 32;

/// Takes what is told of the containers in `known`, at this time.
pub(super) fn usage(told: agent::UsageResponse, known: &HashSet<String>, at_ns: i64) -> GuestUsage {
    let mut containers = BTreeMap::new();
    for one in told.containers {
        if known.contains(&one.container_id) && !containers.contains_key(&one.container_id) {
            containers.insert(one.container_id.clone(), container(one));
        }
    }
    GuestUsage {
        at_ns,
        containers,
        interfaces: told_once(told.interfaces.into_iter().map(interface), |one| one.name.clone()),
        scratch: told.scratch.into_option().filter(|scratch| plain(&scratch.device)).map(file_system),
    }
}

fn container(told: agent::ContainerUsage) -> ContainerUsage {
    let devices = told.devices.into_iter().map(device);
    let devices = told_once(devices, |one| one.name.clone());
    let hugepages = told
        .hugepages
        .into_iter()
        .map(|pages| HugepageUsage { page_size: pages.page_size, bytes: pages.bytes });
    ContainerUsage {
        cpu: cpu(told.cpu.unwrap_or_default()),
        memory: memory(told.memory.unwrap_or_default()),
        tasks: tasks(&told.tasks.unwrap_or_default()),
        devices: told_once(devices.into_iter(), |one| format!("{}:{}", one.major, one.minor)),
        io_pressure: told.io_pressure.into_option().map(pressure),
        writable_layer: told
            .writable_layer
            .into_option()
            .map(|layer| WritableLayerUsage { bytes: layer.bytes, inodes: layer.inodes }),
        hugepages: told_once(hugepages, |one| one.page_size.clone()),
    }
}

/// Whether a name can go into a metric's label as it is.
fn plain(name: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_graphic() && !matches!(byte, b'"' | b'\\');
    !name.is_empty() && name.len() <= NAME_BYTES_MAX && name.bytes().all(plain)
}

/// The first of each name, within the bound: two metrics of one name and labels would make a scraper
/// refuse those of all pods.
fn told_once<T>(all: impl Iterator<Item = T>, name: impl Fn(&T) -> String) -> Vec<T> {
    let mut seen = HashSet::new();
    // Looks at no more than an honest answer has.
    let mut looked_at: Vec<T> = all.take(ENTRIES_MAX).collect();
    looked_at.retain(|one| {
        let name = name(one);
        plain(&name) && seen.insert(name)
    });
    looked_at
}

fn ns(microseconds: u64) -> u64 {
    microseconds.saturating_mul(1000)
}

fn cpu(told: agent::CpuUsage) -> CpuUsage {
    CpuUsage {
        usage_ns: ns(told.usage_us),
        nano_cores: None,
        user_ns: ns(told.user_us),
        system_ns: ns(told.system_us),
        periods: told.periods,
        throttled_periods: told.throttled_periods,
        throttled_ns: ns(told.throttled_us),
        pressure: told.pressure.into_option().map(pressure),
    }
}

fn memory(told: agent::MemoryUsage) -> MemoryUsage {
    MemoryUsage {
        usage: told.usage,
        usage_max: told.usage_max,
        anon: told.anon,
        file: told.file,
        inactive_file: told.inactive_file,
        kernel: told.kernel,
        mapped_file: told.mapped_file,
        swap: told.swap,
        page_faults: told.page_faults,
        major_page_faults: told.major_page_faults,
        limit_hits: told.limit_hits,
        oom_events: told.oom_events,
        pressure: told.pressure.into_option().map(pressure),
    }
}

fn tasks(told: &agent::TaskUsage) -> TaskUsage {
    TaskUsage {
        processes: told.processes,
        threads: told.threads,
        threads_max: told.threads_max,
        file_descriptors: told.file_descriptors,
        sockets: told.sockets,
        open_files_max: told.open_files_max,
    }
}

fn pressure(told: agent::Pressure) -> Pressure {
    Pressure { some: stall(&told.some.unwrap_or_default()), full: stall(&told.full.unwrap_or_default()) }
}

fn stall(told: &agent::Stall) -> Stall {
    // Hundredths of a percent; no share is larger than the whole.
    let percent = |hundredths: u32| f64::from(hundredths.min(10_000)) / 100.0;
    Stall {
        total_ns: ns(told.total_us),
        avg10: percent(told.avg10),
        avg60: percent(told.avg60),
        avg300: percent(told.avg300),
    }
}

fn device(told: agent::DeviceUsage) -> DeviceUsage {
    DeviceUsage {
        major: told.major,
        minor: told.minor,
        name: told.name,
        read_bytes: told.read_bytes,
        write_bytes: told.write_bytes,
        reads: told.reads,
        writes: told.writes,
    }
}

fn interface(told: agent::InterfaceUsage) -> InterfaceUsage {
    InterfaceUsage {
        name: told.name,
        rx_bytes: told.rx_bytes,
        rx_packets: told.rx_packets,
        rx_errors: told.rx_errors,
        rx_dropped: told.rx_dropped,
        tx_bytes: told.tx_bytes,
        tx_packets: told.tx_packets,
        tx_errors: told.tx_errors,
        tx_dropped: told.tx_dropped,
    }
}

fn file_system(told: agent::FilesystemUsage) -> FilesystemUsage {
    FilesystemUsage {
        device: told.device,
        bytes_total: told.bytes_total,
        bytes_free: told.bytes_free,
        inodes_total: told.inodes_total,
        inodes_free: told.inodes_free,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn known(ids: &[&str]) -> HashSet<String> {
        ids.iter().map(|&id| id.to_owned()).collect()
    }

    fn interface_named(name: &str) -> agent::InterfaceUsage {
        agent::InterfaceUsage { name: name.into(), ..Default::default() }
    }

    fn container_named(id: &str) -> agent::ContainerUsage {
        agent::ContainerUsage { container_id: id.into(), ..Default::default() }
    }

    #[test]
    fn only_containers_of_the_pod_are_taken_and_each_once() {
        let mut first = container_named("c1");
        first.memory = Some(agent::MemoryUsage { usage: 7, ..Default::default() }).into();
        let containers = vec![first, container_named("c1"), container_named("another pod's")];
        let told = agent::UsageResponse { containers, ..Default::default() };
        let usage = usage(told, &known(&["c1", "c2"]), 5);
        assert_eq!((usage.at_ns, usage.containers.len()), (5, 1));
        assert_eq!(usage.containers["c1"].memory.usage, 7);
    }

    #[test]
    fn names_that_are_not_plain_or_come_again_are_left_out() {
        let long = "x".repeat(NAME_BYTES_MAX + 1);
        let names = ["eth0", "eth0", "", "a\"b", "a\nb", "é", &long, "net1"];
        let interfaces = names.iter().map(|name| interface_named(name)).collect();
        let usage = usage(agent::UsageResponse { interfaces, ..Default::default() }, &known(&[]), 1);
        let names: Vec<_> = usage.interfaces.iter().map(|one| one.name.as_str()).collect();
        assert_eq!(names, ["eth0", "net1"]);
    }

    #[test]
    fn lists_are_bounded() {
        let interfaces = (0..100_000).map(|n| interface_named(&format!("d{n}"))).collect();
        let usage = usage(agent::UsageResponse { interfaces, ..Default::default() }, &known(&[]), 1);
        assert_eq!(usage.interfaces.len(), ENTRIES_MAX);
    }

    #[test]
    fn figures_beyond_all_measure_are_cut_and_break_nothing() {
        let stall = agent::Stall { total_us: u64::MAX, avg10: u32::MAX, ..Default::default() };
        let pressure = agent::Pressure { some: Some(stall).into(), ..Default::default() };
        let mut one = container_named("c1");
        one.cpu = Some(agent::CpuUsage { usage_us: u64::MAX, ..Default::default() }).into();
        one.memory = Some(agent::MemoryUsage { inactive_file: 9, usage: 3, ..Default::default() }).into();
        one.io_pressure = Some(pressure).into();
        let told = agent::UsageResponse { containers: vec![one], ..Default::default() };
        let usage = usage(told, &known(&["c1"]), 1);
        let one = &usage.containers["c1"];
        assert_eq!((one.cpu.usage_ns, one.memory.working_set()), (u64::MAX, 0));
        let some = &one.io_pressure.as_ref().unwrap().some;
        assert!((some.avg10 - 100.0).abs() < f64::EPSILON && some.total_ns == u64::MAX);
    }

    proptest! {
        #[test]
        fn whatever_decodes_is_taken(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
            if let Ok(told) = proto_agent::frame::decode::<agent::UsageResponse>(&bytes) {
                let usage = usage(told, &known(&["", "a"]), 1);
                prop_assert!(usage.containers.len() <= 2 && usage.interfaces.len() <= ENTRIES_MAX);
            }
        }
    }
}
