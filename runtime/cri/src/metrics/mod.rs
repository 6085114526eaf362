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

use self::metric::{ContainerSource, Values};
pub(crate) use self::metric::{Figure, Metric, Origin, PodSource};

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
            label_keys: label_keys(metric).map(str::to_owned).collect(),
        })
        .collect()
}

/// The metrics of a pod and of its containers.
pub(crate) struct PodMetrics {
    pub(crate) pod_sandbox_id: String,
    pub(crate) pod: Vec<Sample>,
    /// By container.
    pub(crate) containers: Vec<(String, Vec<Sample>)>,
}

/// One value of a metric.
pub(crate) struct Sample {
    pub(crate) metric: &'static Metric,
    pub(crate) origin: Origin,
    /// Values of all labels, in the descriptor's order.
    pub(crate) labels: Vec<String>,
    /// Nanoseconds since the epoch; 0 if it was collected for this request.
    pub(crate) timestamp_ns: i64,
    pub(crate) figure: Figure,
}

impl PodMetrics {
    /// The metrics of a pod and of these containers of it. A guest that does not answer has none.
    pub(crate) fn of<'a>(
        source: &PodSource<'_>,
        containers: impl Iterator<Item = &'a ContainerView>,
    ) -> PodMetrics {
        let spec = &source.pod.spec;
        // Like cAdvisor's metrics of a pod's own cgroup: no container, no image.
        let labels = [&spec.name, &spec.namespace, "", &source.pod.id, ""];
        let of = |metric: &Metric| {
            let at_ns = match (metric.pod_origin, source.guest) {
                (Origin::Guest, Some(guest)) => guest.at_ns,
                _ => source.usage.host.at_ns,
            };
            (metric.pod_origin, timestamp(at_ns, source.began_ns), (metric.pod)(source))
        };
        PodMetrics {
            pod_sandbox_id: source.pod.id.clone(),
            pod: samples(labels, of),
            containers: containers.filter_map(|view| of_container(source, view)).collect(),
        }
    }

    /// The metrics as CRI has them.
    pub(crate) fn into_cri(self) -> v1::PodSandboxMetrics {
        let of_container = |(container_id, samples): (String, Vec<Sample>)| v1::ContainerMetrics {
            container_id,
            metrics: samples.into_iter().map(Sample::into_cri).collect(),
        };
        v1::PodSandboxMetrics {
            pod_sandbox_id: self.pod_sandbox_id,
            metrics: self.pod.into_iter().map(Sample::into_cri).collect(),
            container_metrics: self.containers.into_iter().map(of_container).collect(),
        }
    }
}

impl Sample {
    fn into_cri(self) -> v1::Metric {
        v1::Metric {
            name: self.metric.name.to_owned(),
            timestamp: self.timestamp_ns,
            metric_type: self.metric.kind.into(),
            label_values: self.labels,
            value: Some(v1::UInt64Value { value: self.figure.whole() }),
        }
    }
}

fn of_container(pod: &PodSource<'_>, view: &ContainerView) -> Option<(String, Vec<Sample>)> {
    let guest = pod.guest?;
    let usage = guest.containers.get(&view.id)?;
    let source = ContainerSource { guest, view, usage };
    let (spec, asked) = (&pod.pod.spec, &view.spec.user_specified_image);
    let image = if asked.is_empty() { &view.spec.image } else { asked };
    let labels = [&spec.name, &spec.namespace, &view.spec.name, &view.id, image];
    let timestamp = timestamp(guest.at_ns, pod.began_ns);
    let of = |metric: &Metric| (Origin::Guest, timestamp, (metric.container)(&source));
    Some((view.id.clone(), samples(labels.map(String::as_str), of)))
}

/// Returns 0 for values collected for this request.
fn timestamp(at_ns: i64, began_ns: i64) -> i64 {
    if at_ns >= began_ns { 0 } else { at_ns }
}

fn samples(
    labels: [&str; LABELS.len()],
    of: impl Fn(&'static Metric) -> (Origin, i64, Values),
) -> Vec<Sample> {
    let mut all = Vec::new();
    for metric in metrics() {
        let (origin, timestamp_ns, values) = of(metric);
        all.extend(values.into_iter().map(|(own, figure)| Sample {
            metric,
            origin,
            labels: labels.iter().map(|&value| value.to_owned()).chain(own).collect(),
            timestamp_ns,
            figure,
        }));
    }
    all
}

/// Names of a metric's labels.
pub(crate) fn label_keys(metric: &Metric) -> impl Iterator<Item = &'static str> {
    LABELS.into_iter().chain(metric.labels.iter().copied())
}

#[cfg(test)]
mod tests;
