//! Turns a guest's report into reliable usage. Nothing chosen by the guest is longer, more or larger than a
//! limit, names are plain and unique, and no sum overflows. Whether the values are true is up to the guest;
//! they concern only its own pod.

use std::collections::{BTreeMap, HashSet};

use proto_agent::agent;

use super::figures::{
    ContainerUsage, CpuUsage, DeviceUsage, FilesystemUsage, GuestUsage, HugepageUsage, InterfaceUsage,
    MemoryUsage, Pressure, Stall, TaskUsage, WritableLayerUsage,
};

/// Most interfaces of a pod, and disks and page sizes of a container: above the numbers of an honest agent.
const ENTRIES_MAX: usize = 64;

/// Longest name of any of these, in bytes: a disk's `DISK_NAME_LEN` is the longest.
const NAME_BYTES_MAX: usize = 32;

/// Takes the report's known containers, at this time.
pub(super) fn usage(
    reported: agent::UsageResponse,
    is_known: impl Fn(&str) -> bool,
    at_ns: i64,
) -> GuestUsage {
    let mut containers = BTreeMap::new();
    for one in reported.containers {
        if is_known(&one.container_id) && !containers.contains_key(&one.container_id) {
            containers.insert(one.container_id.clone(), container(one));
        }
    }
    GuestUsage {
        at_ns,
        containers,
        interfaces: unique(reported.interfaces.into_iter().map(interface), |one| one.name.clone()),
        scratch: reported.scratch.into_option().filter(|scratch| plain(&scratch.device)).map(file_system),
    }
}

fn container(reported: agent::ContainerUsage) -> ContainerUsage {
    let devices = reported.devices.into_iter().map(device);
    let devices = unique(devices, |one| one.name.clone());
    let hugepages = reported
        .hugepages
        .into_iter()
        .map(|pages| HugepageUsage { page_size: pages.page_size, bytes: pages.bytes });
    ContainerUsage {
        cpu: cpu(reported.cpu.unwrap_or_default()),
        memory: memory(reported.memory.unwrap_or_default()),
        tasks: tasks(&reported.tasks.unwrap_or_default()),
        devices: unique(devices.into_iter(), |one| format!("{}:{}", one.major, one.minor)),
        io_pressure: reported.io_pressure.into_option().map(pressure),
        writable_layer: reported
            .writable_layer
            .into_option()
            .map(|layer| WritableLayerUsage { bytes: layer.bytes, inodes: layer.inodes }),
        hugepages: unique(hugepages, |one| one.page_size.clone()),
    }
}

/// Whether a name can go into a metric's label as it is.
fn plain(name: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_graphic() && !matches!(byte, b'"' | b'\\');
    !name.is_empty() && name.len() <= NAME_BYTES_MAX && name.bytes().all(plain)
}

/// The first of each name, within the bound: two metrics of one name and labels would make a scraper
/// refuse those of all pods.
fn unique<T>(all: impl Iterator<Item = T>, name: impl Fn(&T) -> String) -> Vec<T> {
    let mut seen = HashSet::new();
    // Reads no more entries than an honest answer has.
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

fn cpu(reported: agent::CpuUsage) -> CpuUsage {
    CpuUsage {
        usage_ns: ns(reported.usage_us),
        nano_cores: None,
        user_ns: ns(reported.user_us),
        system_ns: ns(reported.system_us),
        periods: reported.periods,
        throttled_periods: reported.throttled_periods,
        throttled_ns: ns(reported.throttled_us),
        pressure: reported.pressure.into_option().map(pressure),
    }
}

fn memory(reported: agent::MemoryUsage) -> MemoryUsage {
    MemoryUsage {
        usage: reported.usage,
        usage_max: reported.usage_max,
        anon: reported.anon,
        file: reported.file,
        inactive_file: reported.inactive_file,
        kernel: reported.kernel,
        mapped_file: reported.mapped_file,
        swap: reported.swap,
        page_faults: reported.page_faults,
        major_page_faults: reported.major_page_faults,
        limit_hits: reported.limit_hits,
        oom_events: reported.oom_events,
        pressure: reported.pressure.into_option().map(pressure),
    }
}

fn tasks(reported: &agent::TaskUsage) -> TaskUsage {
    TaskUsage {
        processes: reported.processes,
        threads: reported.threads,
        threads_max: reported.threads_max,
        file_descriptors: reported.file_descriptors,
        sockets: reported.sockets,
        open_files_max: reported.open_files_max,
    }
}

fn pressure(reported: agent::Pressure) -> Pressure {
    Pressure {
        some: stall(&reported.some.unwrap_or_default()),
        full: stall(&reported.full.unwrap_or_default()),
    }
}

fn stall(reported: &agent::Stall) -> Stall {
    // Hundredths of a percent; no share is larger than the whole.
    let percent = |hundredths: u32| f64::from(hundredths.min(10_000)) / 100.0;
    Stall {
        total_ns: ns(reported.total_us),
        avg10: percent(reported.avg10),
        avg60: percent(reported.avg60),
        avg300: percent(reported.avg300),
    }
}

fn device(reported: agent::DeviceUsage) -> DeviceUsage {
    DeviceUsage {
        major: reported.major,
        minor: reported.minor,
        name: reported.name,
        read_bytes: reported.read_bytes,
        write_bytes: reported.write_bytes,
        reads: reported.reads,
        writes: reported.writes,
    }
}

fn interface(reported: agent::InterfaceUsage) -> InterfaceUsage {
    InterfaceUsage {
        name: reported.name,
        rx_bytes: reported.rx_bytes,
        rx_packets: reported.rx_packets,
        rx_errors: reported.rx_errors,
        rx_dropped: reported.rx_dropped,
        tx_bytes: reported.tx_bytes,
        tx_packets: reported.tx_packets,
        tx_errors: reported.tx_errors,
        tx_dropped: reported.tx_dropped,
    }
}

fn file_system(reported: agent::FilesystemUsage) -> FilesystemUsage {
    FilesystemUsage {
        device: reported.device,
        bytes_total: reported.bytes_total,
        bytes_free: reported.bytes_free,
        inodes_total: reported.inodes_total,
        inodes_free: reported.inodes_free,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn known(ids: &'static [&str]) -> impl Fn(&str) -> bool {
        |id| ids.contains(&id)
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
        let reported = agent::UsageResponse { containers, ..Default::default() };
        let usage = usage(reported, known(&["c1", "c2"]), 5);
        assert_eq!((usage.at_ns, usage.containers.len()), (5, 1));
        assert_eq!(usage.containers["c1"].memory.usage, 7);
    }

    #[test]
    fn names_that_are_not_plain_or_come_again_are_left_out() {
        let long = "x".repeat(NAME_BYTES_MAX + 1);
        let names = ["eth0", "eth0", "", "a\"b", "a\nb", "é", &long, "net1"];
        let interfaces = names.iter().map(|name| interface_named(name)).collect();
        let usage = usage(agent::UsageResponse { interfaces, ..Default::default() }, known(&[]), 1);
        let names: Vec<_> = usage.interfaces.iter().map(|one| one.name.as_str()).collect();
        assert_eq!(names, ["eth0", "net1"]);
    }

    #[test]
    fn lists_are_bounded() {
        let interfaces = (0..100_000).map(|n| interface_named(&format!("d{n}"))).collect();
        let usage = usage(agent::UsageResponse { interfaces, ..Default::default() }, known(&[]), 1);
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
        let reported = agent::UsageResponse { containers: vec![one], ..Default::default() };
        let usage = usage(reported, known(&["c1"]), 1);
        let one = &usage.containers["c1"];
        assert_eq!((one.cpu.usage_ns, one.memory.working_set()), (u64::MAX, 0));
        let some = &one.io_pressure.as_ref().unwrap().some;
        assert!((some.avg10 - 100.0).abs() < f64::EPSILON && some.total_ns == u64::MAX);
    }

    proptest! {
        #[test]
        fn whatever_decodes_is_taken(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
            if let Ok(reported) = proto_agent::frame::decode::<agent::UsageResponse>(&bytes) {
                let usage = usage(reported, known(&["", "a"]), 1);
                prop_assert!(usage.containers.len() <= 2 && usage.interfaces.len() <= ENTRIES_MAX);
            }
        }
    }
}
