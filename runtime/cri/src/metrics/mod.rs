//! The metrics passed on by the kubelet as `/metrics/cadvisor`. Names, labels and meaning are cAdvisor's,
//! because dashboards and alerts are written for them.
//!
//! One table defines a metric completely: name, help, kind, further labels, and the source of its values. So
//! descriptors and values cannot drift apart.
//!
//! `container_hugetlb_max_usage_bytes` is not among them, because cgroup v2 has no such value.

mod cpu;
mod disk;
mod memory;
mod metric;
mod network;
mod spec;
mod tasks;

use proto_cri::v1;
use runtime_pod::ContainerView;

pub(crate) use self::metric::PodSource;
use self::metric::{ContainerSource, Metric, Values};

/// Labels of every metric, in this order. A metric's own labels follow.
const LABELS: [&str; 5] = ["pod", "namespace", "container", "id", "image"];

fn metrics() -> impl Iterator<Item = &'static Metric> {
    [cpu::METRICS, memory::METRICS, disk::METRICS, network::METRICS, tasks::METRICS, spec::METRICS]
        .into_iter()
        .flatten()
}

/// All descriptors. They never change while the daemon runs.
pub(crate) fn descriptors() -> Vec<v1::MetricDescriptor> {
    metrics()
        .map(|metric| v1::MetricDescriptor {
            name: metric.name.to_owned(),
            help: metric.help.to_owned(),
            label_keys: LABELS.iter().chain(metric.labels).map(|&key| key.to_owned()).collect(),
        })
        .collect()
}

/// The metrics of a pod and of these containers of it.
pub(crate) fn of_pod<'a>(
    source: &PodSource<'_>,
    containers: impl Iterator<Item = &'a ContainerView>,
) -> v1::PodSandboxMetrics {
    let spec = &source.pod.spec;
    // Like cAdvisor's metrics of a pod's own cgroup: no container, no image.
    let labels = [&spec.name, &spec.namespace, "", &source.pod.id, ""];
    let timestamp = timestamp(source.usage.host.at_ns.min(source.guest.at_ns), source.began_ns);
    let of_containers = containers.filter_map(|view| of_container(source, view));
    v1::PodSandboxMetrics {
        pod_sandbox_id: source.pod.id.clone(),
        metrics: values(labels, timestamp, |metric| (metric.pod)(source)),
        container_metrics: of_containers.collect(),
    }
}

fn of_container(pod: &PodSource<'_>, view: &ContainerView) -> Option<v1::ContainerMetrics> {
    let usage = pod.guest.containers.get(&view.id)?;
    let source = ContainerSource { pod, view, usage };
    let (spec, asked) = (&pod.pod.spec, &view.spec.user_specified_image);
    let image = if asked.is_empty() { &view.spec.image } else { asked };
    let labels = [&spec.name, &spec.namespace, &view.spec.name, &view.id, image];
    let timestamp = timestamp(pod.guest.at_ns, pod.began_ns);
    Some(v1::ContainerMetrics {
        container_id: view.id.clone(),
        metrics: values(labels.map(String::as_str), timestamp, |metric| (metric.container)(&source)),
    })
}

/// Returns 0 for values collected for this request.
fn timestamp(at_ns: i64, began_ns: i64) -> i64 {
    if at_ns >= began_ns { 0 } else { at_ns }
}

fn values(labels: [&str; LABELS.len()], timestamp: i64, of: impl Fn(&Metric) -> Values) -> Vec<v1::Metric> {
    let mut all = Vec::new();
    for metric in metrics() {
        all.extend(of(metric).into_iter().map(|(own, value)| v1::Metric {
            name: metric.name.to_owned(),
            timestamp,
            metric_type: metric.kind.into(),
            label_values: labels.iter().map(|&value| value.to_owned()).chain(own).collect(),
            value: Some(v1::UInt64Value { value }),
        }));
    }
    all
}

#[cfg(test)]
mod tests;
