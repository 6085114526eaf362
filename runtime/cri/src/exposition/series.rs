//! The metrics of CRI's ListPodSandboxMetrics as families of series. Pure.

use std::collections::BTreeMap;

use prometheus::proto::{Counter, Gauge, LabelPair, Metric, MetricFamily, MetricType};
use proto_cri::v1;

use crate::metrics::descriptors;

/// One family for each metric with a value.
pub(super) fn families(pods: &[v1::PodSandboxMetrics]) -> Vec<MetricFamily> {
    let descriptors = descriptors();
    let described: BTreeMap<_, _> = descriptors.iter().map(|one| (one.name.as_str(), one)).collect();
    let mut families: BTreeMap<&str, MetricFamily> = BTreeMap::new();
    let all = pods.iter().flat_map(|pod| {
        pod.metrics.iter().chain(pod.container_metrics.iter().flat_map(|container| &container.metrics))
    });
    for metric in all {
        let Some((name, descriptor)) = described.get_key_value(metric.name.as_str()) else { continue };
        let family = families.entry(name).or_insert_with(|| family(descriptor, metric.metric_type()));
        family.mut_metric().push(series(descriptor, metric));
    }
    families.into_values().collect()
}

fn family(descriptor: &v1::MetricDescriptor, kind: v1::MetricType) -> MetricFamily {
    let mut family = MetricFamily::default();
    family.set_name(descriptor.name.clone());
    family.set_help(descriptor.help.clone());
    family.set_field_type(match kind {
        v1::MetricType::Counter => MetricType::COUNTER,
        v1::MetricType::Gauge => MetricType::GAUGE,
    });
    family
}

fn series(descriptor: &v1::MetricDescriptor, metric: &v1::Metric) -> Metric {
    let labels = descriptor.label_keys.iter().zip(&metric.label_values).map(|(key, value)| {
        let mut pair = LabelPair::default();
        pair.set_name(key.clone());
        pair.set_value(value.clone());
        pair
    });
    let mut series = Metric::from_label(labels.collect());
    // Bytes and nanoseconds stay below 2^53 for a century or so.
    let value = metric.value.map_or(0, |value| value.value) as f64;
    match metric.metric_type() {
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
    series.set_timestamp_ms(metric.timestamp / 1_000_000);
    series
}

#[cfg(test)]
mod tests {
    use super::*;

    fn metric(name: &str, kind: v1::MetricType, container: &str, value: u64) -> v1::Metric {
        let labels = ["web", "shop", container, "id", "image \"of\" \\ two\nlines"];
        v1::Metric {
            name: name.into(),
            timestamp: 0,
            metric_type: kind.into(),
            label_values: labels.map(str::to_owned).to_vec(),
            value: Some(v1::UInt64Value { value }),
        }
    }

    #[test]
    fn a_metric_has_one_family_with_the_series_of_all_pods_and_containers() {
        let of = |container: &str, value| {
            vec![metric("container_memory_usage_bytes", v1::MetricType::Gauge, container, value)]
        };
        let pod = v1::PodSandboxMetrics {
            pod_sandbox_id: "p".into(),
            metrics: of("", 5),
            container_metrics: vec![v1::ContainerMetrics {
                container_id: "c".into(),
                metrics: of("main", 3),
            }],
        };
        let text = super::super::text(&families(&[pod])).unwrap();
        assert_eq!(text.matches("# TYPE container_memory_usage_bytes gauge").count(), 1, "{text}");
        assert!(text.contains(r#"pod="web""#) && text.contains(r#"namespace="shop""#), "{text}");
        let sample = text.lines().find(|line| line.contains(r#"container="main""#)).unwrap();
        assert!(
            sample.contains(r#"image="image \"of\" \\ two\nlines""#) && sample.ends_with(" 3"),
            "{sample}"
        );
    }

    #[test]
    fn a_metric_that_nobody_has_described_is_left_out() {
        let strange = metric("strange", v1::MetricType::Counter, "main", 1);
        let pod = v1::PodSandboxMetrics { metrics: vec![strange], ..Default::default() };
        assert!(families(&[pod]).is_empty());
    }
}
