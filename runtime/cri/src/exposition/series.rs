//! The metrics of pods and containers as families of series. Pure.

use std::collections::BTreeMap;

use prometheus::proto::{Counter, Gauge, LabelPair, Metric, MetricFamily, MetricType};
use proto_cri::v1;

use crate::metrics::{Origin, PodMetrics, Sample, label_keys};

/// One family for each metric with a value. A pod's own values from the node are left out: a kubelet's
/// cAdvisor has them, from the pod's cgroup, and each VM would count twice.
pub(super) fn families(pods: &[PodMetrics]) -> Vec<MetricFamily> {
    let mut families: BTreeMap<&str, MetricFamily> = BTreeMap::new();
    let all = pods.iter().flat_map(|pod| {
        let of_pod = pod.pod.iter().filter(|sample| sample.origin == Origin::Guest);
        of_pod.chain(pod.containers.iter().flat_map(|(_, samples)| samples))
    });
    for sample in all {
        let family = families.entry(sample.metric.name).or_insert_with(|| family(sample));
        family.mut_metric().push(series(sample));
    }
    families.into_values().collect()
}

fn family(sample: &Sample) -> MetricFamily {
    let mut family = MetricFamily::default();
    family.set_name(sample.metric.name.to_owned());
    family.set_help(sample.metric.help.to_owned());
    family.set_field_type(match sample.metric.kind {
        v1::MetricType::Counter => MetricType::COUNTER,
        v1::MetricType::Gauge => MetricType::GAUGE,
    });
    family
}

fn series(sample: &Sample) -> Metric {
    let labels = label_keys(sample.metric).zip(&sample.labels).map(|(key, value)| {
        let mut pair = LabelPair::default();
        pair.set_name(key.to_owned());
        pair.set_value(value.clone());
        pair
    });
    let mut series = Metric::from_label(labels.collect());
    let value = sample.figure.exact();
    match sample.metric.kind {
        v1::MetricType::Counter => {
            let mut counter = Counter::default();
            counter.set_value(value);
            series.set_counter(counter);
        }
        v1::MetricType::Gauge => {
            let mut gauge = Gauge::default();
            gauge.set_value(value);
            series.set_gauge(gauge);
        }
    }
    // The time of the value in milliseconds. 0 leaves the time to the scraper.
    series.set_timestamp_ms(sample.timestamp_ns / 1_000_000);
    series
}

#[cfg(test)]
mod tests {
    use runtime_pod::{
        ContainerUsage, ContainerView, CpuUsage, GuestUsage, HostUsage, InterfaceUsage, PodUsage, PodView,
    };
    use runtime_spec::{ContainerSpec, PodSpec};

    use super::*;
    use crate::metrics::PodSource;

    #[test]
    fn containers_and_the_pods_network_are_there_and_what_the_kubelet_has_is_not() {
        let pod = PodView {
            id: "p".into(),
            spec: PodSpec { name: "web".into(), namespace: "shop".into(), ..Default::default() },
            ..Default::default()
        };
        let image = "image \"of\" \\ two\nlines".to_owned();
        let container = ContainerView {
            id: "c".into(),
            spec: ContainerSpec { name: "main".into(), image, ..Default::default() },
            ..Default::default()
        };
        let cpu = CpuUsage { usage_ns: 3_500_000_000, ..Default::default() };
        let guest = GuestUsage {
            containers: [("c".to_owned(), ContainerUsage { cpu, ..Default::default() })].into(),
            interfaces: vec![InterfaceUsage { name: "eth0".into(), rx_bytes: 7, ..Default::default() }],
            ..Default::default()
        };
        let usage = PodUsage { pod_id: "p".into(), host: HostUsage::default(), guest: None };
        let source = PodSource { pod: &pod, usage: &usage, guest: Some(&guest), began_ns: 0 };
        let text =
            super::super::text(&families(&[PodMetrics::of(&source, [&container].into_iter())])).unwrap();
        assert_eq!(text.matches("# TYPE container_cpu_usage_seconds_total counter").count(), 1, "{text}");
        let of = |name: &str| text.lines().filter(|line| line.starts_with(name)).collect::<Vec<_>>();
        let cpu = of("container_cpu_usage_seconds_total{");
        assert!(cpu.len() == 1 && cpu[0].ends_with(" 3.5"), "parts of a second: {cpu:?}");
        for label in [r#"pod="web""#, r#"namespace="shop""#, r#"container="main""#, r#"cpu="total""#] {
            assert!(cpu[0].contains(label), "{label}: {cpu:?}");
        }
        assert!(cpu[0].contains(r#"image="image \"of\" \\ two\nlines""#), "{cpu:?}");
        let network = of("container_network_receive_bytes_total{");
        assert!(network.len() == 1 && network[0].contains(r#"container="""#) && network[0].ends_with(" 7"));
    }
}
