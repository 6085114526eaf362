//! Descriptors and values match.

use std::collections::{BTreeMap, HashSet};

use runtime_pod::*;
use runtime_spec::{ContainerSpec, PodSpec, Resources};

use super::*;

fn pod() -> PodView {
    PodView {
        id: "p1".into(),
        spec: PodSpec { name: "web".into(), namespace: "default".into(), ..Default::default() },
        created_at_ns: 7_000_000_000,
        ..Default::default()
    }
}

fn container() -> ContainerView {
    let resources = Resources { cpu_quota: 20_000, memory_limit_bytes: 64 << 20, ..Default::default() };
    ContainerView {
        id: "c1".into(),
        pod_id: "p1".into(),
        spec: ContainerSpec { name: "app".into(), image: "busybox".into(), ..Default::default() },
        resources,
        started_at_ns: 9_000_000_000,
        ..Default::default()
    }
}

/// A guest with all values.
fn busy() -> GuestUsage {
    let pressure = || Some(Pressure::default());
    let usage = ContainerUsage {
        cpu: CpuUsage { usage_ns: 3_500_000_000, pressure: pressure(), ..Default::default() },
        memory: MemoryUsage { usage: 100, inactive_file: 40, pressure: pressure(), ..Default::default() },
        tasks: TaskUsage { open_files_max: Some(1024), ..Default::default() },
        devices: vec![DeviceUsage { major: 254, name: "vda".into(), read_bytes: 8, ..Default::default() }],
        io_pressure: pressure(),
        writable_layer: Some(WritableLayerUsage { bytes: 4096, inodes: 2 }),
        hugepages: vec![HugepageUsage { page_size: "2MB".into(), bytes: 0 }],
    };
    GuestUsage {
        at_ns: 20_000_000_000,
        containers: [("c1".to_owned(), usage)].into(),
        interfaces: ["eth0", "net1"].map(|n| InterfaceUsage { name: n.into(), ..Default::default() }).into(),
        scratch: Some(FilesystemUsage { device: "vda".into(), bytes_total: 1 << 30, ..Default::default() }),
    }
}

fn pod_metrics(guest: &GuestUsage, began_ns: i64) -> v1::PodSandboxMetrics {
    let host = HostUsage { at_ns: 20_000_000_000, ..Default::default() };
    metrics_with(host, Some(guest), began_ns)
}

fn metrics_with(host: HostUsage, guest: Option<&GuestUsage>, began_ns: i64) -> v1::PodSandboxMetrics {
    let (pod, container) = (pod(), container());
    let usage = PodUsage { pod_id: "p1".into(), host, guest: None };
    let source = PodSource { pod: &pod, usage: &usage, guest, began_ns };
    PodMetrics::of(&source, [&container].into_iter()).into_cri()
}

fn all(metrics: &v1::PodSandboxMetrics) -> Vec<&v1::Metric> {
    let of_containers = metrics.container_metrics.iter().flat_map(|one| &one.metrics);
    metrics.metrics.iter().chain(of_containers).collect()
}

#[test]
fn every_metric_has_a_help_and_a_name_of_its_own() {
    let descriptors = descriptors();
    let names: HashSet<_> = descriptors.iter().map(|one| one.name.as_str()).collect();
    assert_eq!(names.len(), descriptors.len());
    assert!(descriptors.iter().all(|one| !one.help.is_empty() && one.label_keys.len() >= LABELS.len()));
    // The metrics of cAdvisor on Linux, except one missing in cgroup v2.
    assert_eq!(names.len(), 55);
}

#[test]
fn a_busy_container_has_a_value_for_every_descriptor_with_a_value_for_every_label() {
    let metrics = pod_metrics(&busy(), 0);
    let metrics = all(&metrics);
    for descriptor in descriptors() {
        let values: Vec<_> = metrics.iter().filter(|one| one.name == descriptor.name).collect();
        assert!(!values.is_empty(), "{}", descriptor.name);
        for value in values {
            assert_eq!(value.label_values.len(), descriptor.label_keys.len(), "{}", descriptor.name);
        }
    }
}

#[test]
fn no_two_values_have_the_same_name_and_labels() {
    let metrics = pod_metrics(&busy(), 0);
    let mut seen = HashSet::new();
    assert!(all(&metrics).iter().all(|one| seen.insert((&one.name, &one.label_values))));
}

#[test]
fn values_are_listed_under_pod_and_container_by_name() {
    let metrics = pod_metrics(&busy(), 0);
    let container = &metrics.container_metrics[0];
    let find = |name: &str| container.metrics.iter().find(|one| one.name == name).unwrap();
    let cpu = find("container_cpu_usage_seconds_total");
    assert_eq!(cpu.label_values, ["web", "default", "app", "c1", "busybox", "total"]);
    assert_eq!(cpu.value, Some(v1::UInt64Value { value: 3 }));
    let usage = find("container_fs_usage_bytes");
    assert_eq!((usage.label_values[5].as_str(), usage.value.unwrap().value), ("/dev/vda", 4096));
    assert_eq!(find("container_memory_working_set_bytes").value.unwrap().value, 60);
    let network: Vec<_> =
        metrics.metrics.iter().filter(|one| one.name == "container_network_receive_bytes_total").collect();
    assert_eq!(network.len(), 2);
    assert_eq!(network[0].label_values, ["web", "default", "", "p1", "", "eth0"]);
}

#[test]
fn figures_of_an_earlier_answer_carry_its_time() {
    assert!(all(&pod_metrics(&busy(), 20_000_000_000)).iter().all(|one| one.timestamp == 0));
    let late = pod_metrics(&busy(), 30_000_000_000);
    assert!(all(&late).iter().all(|one| one.timestamp == 20_000_000_000));
}

#[test]
fn a_guest_that_does_not_answer_keeps_nothing_of_the_nodes_figures_back() {
    let host = || HostUsage { at_ns: 31_000_000_000, ..Default::default() };
    let time = |metrics: &v1::PodSandboxMetrics, name: &str| {
        metrics.metrics.iter().find(|one| one.name == name).map(|one| one.timestamp)
    };
    let late = metrics_with(host(), Some(&busy()), 30_000_000_000);
    assert_eq!(time(&late, "container_cpu_usage_seconds_total"), Some(0));
    assert_eq!(time(&late, "container_network_receive_bytes_total"), Some(20_000_000_000));
    assert_eq!(late.container_metrics[0].metrics[0].timestamp, 20_000_000_000);
    let silent = metrics_with(host(), None, 30_000_000_000);
    assert_eq!(time(&silent, "container_cpu_usage_seconds_total"), Some(0));
    assert_eq!(time(&silent, "container_network_receive_bytes_total"), None);
    assert!(silent.container_metrics.is_empty());
}

#[test]
fn a_container_that_the_guest_does_not_know_has_no_metrics() {
    let guest = GuestUsage { containers: BTreeMap::new(), ..busy() };
    assert!(pod_metrics(&guest, 0).container_metrics.is_empty());
}
