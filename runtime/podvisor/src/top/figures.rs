//! Usage of pods and containers from two samples: CPU and network are differences of counters over the time
//! between them. Pure.

use std::collections::BTreeMap;

use proto_cri::v1;
use serde::Serialize;

/// The column to sort rows by, largest first. Names are sorted from a to z.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum SortBy {
    /// CPU of the VM, or of the container.
    #[default]
    Cpu,
    /// Memory of the VM on the node; the working set of a container.
    Memory,
    /// Bytes received and sent per second.
    Network,
    /// Namespace and name.
    Name,
}

/// Counters and sizes at one time.
#[derive(Clone, Debug, Default)]
pub(super) struct Sample {
    pub(super) pods: Vec<v1::PodSandboxStats>,
    /// Memory of VMs in bytes, by the pod's id.
    pub(super) vm_memory: BTreeMap<String, u64>,
}

/// A pod's usage. A value is `None` if it is unknown: the pod was not in the previous sample, or its guest
/// does not answer.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct PodFigures {
    pub(super) id: String,
    pub(super) namespace: String,
    pub(super) name: String,
    /// CPUs in use.
    pub(super) cpus: Option<f64>,
    /// Memory of the pod on the node, in bytes: the VM's, and its VMM's own.
    pub(super) memory_used_bytes: Option<u64>,
    /// The size of the VM's RAM in bytes; `None` for pods without a VM.
    pub(super) memory_given_bytes: Option<u64>,
    pub(super) received_bytes_per_second: Option<f64>,
    pub(super) sent_bytes_per_second: Option<f64>,
    pub(super) containers: Vec<ContainerFigures>,
}

/// A container's usage.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ContainerFigures {
    pub(super) id: String,
    pub(super) name: String,
    /// CPUs in use.
    pub(super) cpus: Option<f64>,
    pub(super) working_set_bytes: Option<u64>,
}

/// A counter with the time of its value.
#[derive(Clone, Copy)]
struct Counter {
    value: u64,
    at_ns: i64,
}

/// Returns the usage between two samples, sorted.
pub(super) fn figures(before: Option<&Sample>, now: &Sample, by: SortBy) -> Vec<PodFigures> {
    let earlier = |id: &str| before?.pods.iter().find(|pod| pod_id(pod) == id);
    let mut pods: Vec<PodFigures> =
        now.pods.iter().map(|pod| pod_figures(earlier(pod_id(pod)), pod, &now.vm_memory)).collect();
    sort(&mut pods, by);
    pods
}

fn pod_figures(
    before: Option<&v1::PodSandboxStats>,
    now: &v1::PodSandboxStats,
    vm_memory: &BTreeMap<String, u64>,
) -> PodFigures {
    let attributes = now.attributes.clone().unwrap_or_default();
    let metadata = attributes.metadata.unwrap_or_default();
    let linux = now.linux.as_ref();
    let earlier = before.and_then(|before| before.linux.as_ref());
    let network = |direction: fn(&v1::NetworkInterfaceUsage) -> Option<v1::UInt64Value>| {
        rate(
            earlier.and_then(|linux| traffic(linux, direction)),
            linux.and_then(|linux| traffic(linux, direction)),
        )
    };
    let containers = linux.map(|linux| linux.containers.as_slice()).unwrap_or_default();
    let containers_before = earlier.map(|linux| linux.containers.as_slice()).unwrap_or_default();
    let of_container = |one: &v1::ContainerStats| {
        let before = containers_before.iter().find(|before| container_id(before) == container_id(one));
        container_figures(before, one)
    };
    let cpu = |linux: &v1::LinuxPodSandboxStats| linux.cpu.as_ref().and_then(cpu_time);
    PodFigures {
        cpus: per_second(earlier.and_then(cpu), linux.and_then(cpu)),
        memory_used_bytes: linux
            .and_then(|linux| number(linux.memory?.usage_bytes.or(linux.memory?.working_set_bytes))),
        memory_given_bytes: vm_memory.get(&attributes.id).copied(),
        received_bytes_per_second: network(|one| one.rx_bytes),
        sent_bytes_per_second: network(|one| one.tx_bytes),
        containers: containers.iter().map(of_container).collect(),
        id: attributes.id,
        namespace: metadata.namespace,
        name: metadata.name,
    }
}

fn container_figures(before: Option<&v1::ContainerStats>, now: &v1::ContainerStats) -> ContainerFigures {
    let cpu = |stats: &v1::ContainerStats| stats.cpu.as_ref().and_then(cpu_time);
    let metadata = now.attributes.as_ref().and_then(|attributes| attributes.metadata.clone());
    ContainerFigures {
        id: container_id(now).to_owned(),
        name: metadata.unwrap_or_default().name,
        cpus: per_second(before.and_then(cpu), cpu(now)),
        working_set_bytes: now.memory.and_then(|memory| number(memory.working_set_bytes)),
    }
}

fn pod_id(pod: &v1::PodSandboxStats) -> &str {
    pod.attributes.as_ref().map(|attributes| attributes.id.as_str()).unwrap_or_default()
}

fn container_id(container: &v1::ContainerStats) -> &str {
    container.attributes.as_ref().map(|attributes| attributes.id.as_str()).unwrap_or_default()
}

fn number(value: Option<v1::UInt64Value>) -> Option<u64> {
    value.map(|value| value.value)
}

fn cpu_time(cpu: &v1::CpuUsage) -> Option<Counter> {
    number(cpu.usage_core_nano_seconds).map(|value| Counter { value, at_ns: cpu.timestamp })
}

/// Bytes of all interfaces in one direction.
fn traffic(
    linux: &v1::LinuxPodSandboxStats,
    direction: fn(&v1::NetworkInterfaceUsage) -> Option<v1::UInt64Value>,
) -> Option<Counter> {
    let network = linux.network.as_ref()?;
    let all = network.default_interface.iter().chain(&network.interfaces);
    let values: Vec<u64> = all.filter_map(|one| number(direction(one))).collect();
    let value = values.iter().fold(0, |sum: u64, value| sum.saturating_add(*value));
    (!values.is_empty()).then_some(Counter { value, at_ns: network.timestamp })
}

/// CPUs: CPU time in nanoseconds over the time in nanoseconds.
fn per_second(before: Option<Counter>, now: Option<Counter>) -> Option<f64> {
    let (before, now) = (before?, now?);
    let passed_ns = now.at_ns.checked_sub(before.at_ns).filter(|passed| *passed > 0)?;
    // A counter below its previous value was reset.
    Some(now.value.checked_sub(before.value)? as f64 / passed_ns as f64)
}

/// Bytes per second.
fn rate(before: Option<Counter>, now: Option<Counter>) -> Option<f64> {
    per_second(before, now).map(|per_ns| per_ns * 1e9)
}

fn sort(pods: &mut [PodFigures], by: SortBy) {
    // The lists have an arbitrary order, and rows must not jump.
    pods.sort_by(|a, b| (&a.namespace, &a.name, &a.id).cmp(&(&b.namespace, &b.name, &b.id)));
    for pod in pods.iter_mut() {
        pod.containers.sort_by(|a, b| (&a.name, &a.id).cmp(&(&b.name, &b.id)));
        match by {
            SortBy::Cpu => largest_first(&mut pod.containers, |one| one.cpus),
            SortBy::Memory => {
                largest_first(&mut pod.containers, |one| one.working_set_bytes.map(|size| size as f64));
            }
            SortBy::Network | SortBy::Name => {}
        }
    }
    let traffic = |pod: &PodFigures| match (pod.received_bytes_per_second, pod.sent_bytes_per_second) {
        (None, None) => None,
        (received, sent) => Some(received.unwrap_or(0.0) + sent.unwrap_or(0.0)),
    };
    match by {
        SortBy::Cpu => largest_first(pods, |pod| pod.cpus),
        SortBy::Memory => largest_first(pods, |pod| pod.memory_used_bytes.map(|size| size as f64)),
        SortBy::Network => largest_first(pods, traffic),
        SortBy::Name => {}
    }
}

/// Sorts by a value. Unknown ones are last, and equal ones keep their order.
fn largest_first<T>(rows: &mut [T], figure: impl Fn(&T) -> Option<f64>) {
    let key = |row: &T| figure(row).unwrap_or(-1.0);
    rows.sort_by(|a, b| key(b).total_cmp(&key(a)));
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    const SECOND: i64 = 1_000_000_000;

    fn value(value: u64) -> Option<v1::UInt64Value> {
        Some(v1::UInt64Value { value })
    }

    fn cpu(at_seconds: i64, milliseconds: u64) -> Option<v1::CpuUsage> {
        Some(v1::CpuUsage {
            timestamp: at_seconds * SECOND,
            usage_core_nano_seconds: value(milliseconds * 1_000_000),
            ..Default::default()
        })
    }

    /// A pod with one container, the user of half of its CPU time.
    pub(in crate::top) fn pod(
        id: &str,
        at_seconds: i64,
        cpu_ms: u64,
        memory: u64,
        traffic: u64,
    ) -> v1::PodSandboxStats {
        let container = v1::ContainerStats {
            attributes: Some(v1::ContainerAttributes {
                id: format!("c-{id}"),
                metadata: Some(v1::ContainerMetadata { name: "app".into(), attempt: 0 }),
                ..Default::default()
            }),
            cpu: cpu(at_seconds, cpu_ms / 2),
            memory: Some(v1::MemoryUsage { working_set_bytes: value(memory / 2), ..Default::default() }),
            ..Default::default()
        };
        let interface =
            v1::NetworkInterfaceUsage { rx_bytes: value(traffic), tx_bytes: value(0), ..Default::default() };
        v1::PodSandboxStats {
            attributes: Some(v1::PodSandboxAttributes {
                id: id.into(),
                metadata: Some(v1::PodSandboxMetadata {
                    name: id.into(),
                    namespace: "shop".into(),
                    ..Default::default()
                }),
                ..Default::default()
            }),
            linux: Some(v1::LinuxPodSandboxStats {
                cpu: cpu(at_seconds, cpu_ms),
                memory: Some(v1::MemoryUsage { usage_bytes: value(memory), ..Default::default() }),
                network: Some(v1::NetworkUsage {
                    timestamp: at_seconds * SECOND,
                    default_interface: Some(interface.clone()),
                    interfaces: vec![interface],
                }),
                containers: vec![container],
                ..Default::default()
            }),
            windows: None,
        }
    }

    fn sample(pods: Vec<v1::PodSandboxStats>) -> Sample {
        Sample { pods, vm_memory: [("web".to_owned(), 128 << 20)].into() }
    }

    #[test]
    fn cpu_and_network_are_differences_over_the_samples_own_time() {
        let before = sample(vec![pod("web", 10, 1000, 5000, 100)]);
        let now = sample(vec![pod("web", 14, 3000, 6000, 2100)]);
        let web = figures(Some(&before), &now, SortBy::Cpu).remove(0);
        assert_eq!((web.cpus, web.containers[0].cpus), (Some(0.5), Some(0.25)));
        assert_eq!((web.memory_used_bytes, web.memory_given_bytes), (Some(6000), Some(128 << 20)));
        assert_eq!((web.received_bytes_per_second, web.sent_bytes_per_second), (Some(1000.0), Some(0.0)));
        assert_eq!(web.containers[0].working_set_bytes, Some(3000));
    }

    #[test]
    fn without_a_sample_before_there_are_sizes_and_no_rates() {
        let now = sample(vec![pod("web", 14, 3000, 6000, 2100)]);
        for before in [None, Some(&sample(vec![pod("other", 10, 1, 1, 1)]))] {
            let web = figures(before, &now, SortBy::Cpu).remove(0);
            assert_eq!(
                (web.cpus, web.received_bytes_per_second, web.memory_used_bytes),
                (None, None, Some(6000))
            );
        }
    }

    #[test]
    fn a_counter_that_began_anew_and_figures_that_stand_still_have_no_rate() {
        let before = sample(vec![pod("web", 10, 1000, 1, 1)]);
        for now in [pod("web", 11, 999, 1, 0), pod("web", 10, 1000, 1, 1), pod("web", 9, 2000, 1, 5)] {
            let web = figures(Some(&before), &sample(vec![now]), SortBy::Cpu).remove(0);
            assert_eq!((web.cpus, web.received_bytes_per_second), (None, None));
        }
    }

    #[test]
    fn a_pod_without_any_figure_is_listed_last() {
        let empty = v1::PodSandboxStats::default();
        let pods = figures(None, &sample(vec![empty, pod("web", 1, 1, 1, 1)]), SortBy::Memory);
        assert_eq!((pods[0].name.as_str(), pods[1].memory_used_bytes), ("web", None));
    }

    #[test]
    fn rows_are_sorted_by_the_column_that_is_asked_for() {
        let before = sample(["a", "b", "c"].map(|id| pod(id, 0, 0, 0, 0)).to_vec());
        let now = sample(vec![pod("a", 1, 10, 30, 20), pod("b", 1, 30, 20, 10), pod("c", 1, 20, 10, 30)]);
        for (by, order) in [
            (SortBy::Cpu, ["b", "c", "a"]),
            (SortBy::Memory, ["a", "b", "c"]),
            (SortBy::Network, ["c", "a", "b"]),
            (SortBy::Name, ["a", "b", "c"]),
        ] {
            let names: Vec<_> = figures(Some(&before), &now, by).into_iter().map(|pod| pod.name).collect();
            assert_eq!(names, order, "{by:?}");
        }
    }
}
