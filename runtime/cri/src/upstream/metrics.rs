//! Metrics of both sides under one descriptor for each name. A client reads a metric's values by the order of
//! the labels in its descriptor, and one name has one order: ours, then the upstream's additional labels.
//! Values of a side with another order are rearranged.

use std::collections::{HashMap, HashSet};

use bytes::Bytes;
use prost::Message;
use proto_cri::v1;
use tonic::Request;

use super::link::unary;
use super::route::{Listed, v1_path};
use super::sides::Sides;

/// The RPC listing descriptors.
pub(super) const DESCRIPTORS: &str = "ListMetricDescriptors";

/// The labels of metrics, by the metric's name.
type Labels = HashMap<String, Vec<String>>;

/// The labels of each side, and those shown to clients.
#[derive(Debug, Default)]
pub(super) struct LabelTable {
    ours: Labels,
    theirs: Labels,
    both: Labels,
}

impl Sides {
    /// The labels as described by both sides.
    pub(super) async fn labels(&self) -> LabelTable {
        let path = v1_path("RuntimeService", DESCRIPTORS);
        let ours = unary(self.ours.clone(), &path, Request::new(Bytes::new())).await;
        let ours = ours.map(tonic::Response::into_inner).unwrap_or_default();
        LabelTable::of(&ours, &self.upstream.known.list(Listed::Descriptors))
    }
}

impl LabelTable {
    fn of(ours: &Bytes, theirs: &Bytes) -> LabelTable {
        let (ours, theirs) = (descriptors(ours), descriptors(theirs));
        let both = labels(&merged(ours.clone(), theirs.clone()));
        LabelTable { ours: labels(&ours), theirs: labels(&theirs), both }
    }

    /// Our list, with the labels shown to clients.
    pub(super) fn of_ours(&self, list: Bytes) -> Bytes {
        self.aligned(list, &self.ours)
    }

    /// The upstream's list, with the labels shown to clients.
    pub(super) fn of_theirs(&self, list: Bytes) -> Bytes {
        self.aligned(list, &self.theirs)
    }

    /// The list of a side with these labels. It keeps its bytes if nothing has to change.
    fn aligned(&self, list: Bytes, from: &Labels) -> Bytes {
        let moved = |name: &str| {
            let (from, to) = (from.get(name)?, self.both.get(name)?);
            (from != to).then_some((from, to))
        };
        if from.keys().all(|name| moved(name).is_none()) {
            return list;
        }
        // A piece of a stream has the same field as a list.
        let Ok(mut answer) = v1::ListPodSandboxMetricsResponse::decode(list.clone()) else { return list };
        let pods = answer.pod_metrics.iter_mut();
        let metrics = pods.flat_map(|pod| {
            let of_containers = pod.container_metrics.iter_mut().flat_map(|one| &mut one.metrics);
            pod.metrics.iter_mut().chain(of_containers)
        });
        for metric in metrics {
            if let Some((from, to)) = moved(&metric.name)
                && from.len() == metric.label_values.len()
            {
                let value = |label: &String| from.iter().position(|of| of == label);
                let values =
                    to.iter().map(|label| value(label).map(|place| metric.label_values[place].clone()));
                metric.label_values = values.map(Option::unwrap_or_default).collect();
            }
        }
        answer.encode_to_vec().into()
    }
}

/// The descriptors of both sides, one for each name.
pub(super) fn joined(ours: &Bytes, theirs: &Bytes) -> Bytes {
    let descriptors = merged(descriptors(ours), descriptors(theirs));
    v1::ListMetricDescriptorsResponse { descriptors }.encode_to_vec().into()
}

fn merged(ours: Vec<v1::MetricDescriptor>, theirs: Vec<v1::MetricDescriptor>) -> Vec<v1::MetricDescriptor> {
    let mut all: Vec<v1::MetricDescriptor> = Vec::new();
    let mut places: HashMap<String, usize> = HashMap::new();
    for descriptor in ours.into_iter().chain(theirs) {
        match places.get(&descriptor.name) {
            Some(place) => {
                let keys = &mut all[*place].label_keys;
                let known: HashSet<String> = keys.iter().cloned().collect();
                keys.extend(descriptor.label_keys.into_iter().filter(|key| !known.contains(key)));
            }
            None => {
                places.insert(descriptor.name.clone(), all.len());
                all.push(descriptor);
            }
        }
    }
    all
}

fn descriptors(list: &Bytes) -> Vec<v1::MetricDescriptor> {
    v1::ListMetricDescriptorsResponse::decode(list.clone()).unwrap_or_default().descriptors
}

fn labels(descriptors: &[v1::MetricDescriptor]) -> Labels {
    descriptors.iter().map(|one| (one.name.clone(), one.label_keys.clone())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(described: &[(&str, &[&str])]) -> Bytes {
        let descriptor = |(name, keys): &(&str, &[&str])| v1::MetricDescriptor {
            name: (*name).into(),
            help: String::new(),
            label_keys: keys.iter().map(ToString::to_string).collect(),
        };
        let descriptors = described.iter().map(descriptor).collect();
        v1::ListMetricDescriptorsResponse { descriptors }.encode_to_vec().into()
    }

    fn metrics(name: &str, values: &[&str]) -> Bytes {
        let label_values = values.iter().map(ToString::to_string).collect();
        let metric = v1::Metric { name: name.into(), label_values, ..Default::default() };
        let of_container = v1::ContainerMetrics { metrics: vec![metric.clone()], ..Default::default() };
        let pod = v1::PodSandboxMetrics {
            metrics: vec![metric],
            container_metrics: vec![of_container],
            ..Default::default()
        };
        v1::ListPodSandboxMetricsResponse { pod_metrics: vec![pod] }.encode_to_vec().into()
    }

    #[test]
    fn descriptors_of_one_name_are_one_with_the_labels_of_both() {
        let ours = list(&[("cpu", &["pod", "id"]), ("own", &["pod"])]);
        let theirs = list(&[("cpu", &["id", "name", "pod"]), ("other", &["id"]), ("other", &["id"])]);
        let expected = list(&[("cpu", &["pod", "id", "name"]), ("own", &["pod"]), ("other", &["id"])]);
        assert_eq!(joined(&ours, &theirs), expected);
        assert_eq!(joined(&ours, &Bytes::new()), ours);
    }

    #[test]
    fn values_stand_where_the_common_descriptor_has_their_labels() {
        let table =
            LabelTable::of(&list(&[("cpu", &["pod", "id"])]), &list(&[("cpu", &["id", "name", "pod"])]));
        assert_eq!(table.of_ours(metrics("cpu", &["web", "1"])), metrics("cpu", &["web", "1", ""]));
        assert_eq!(table.of_theirs(metrics("cpu", &["2", "n", "dns"])), metrics("cpu", &["dns", "2", "n"]));
        let odd = metrics("cpu", &["2"]);
        assert_eq!(table.of_theirs(odd.clone()), odd, "values that its descriptor does not name");
    }

    #[test]
    fn sides_with_the_same_labels_are_handed_on_as_they_are() {
        let same = list(&[("cpu", &["pod", "id"])]);
        let table = LabelTable::of(&same, &same);
        let later = Bytes::from([&metrics("cpu", &["a", "b"])[..], &[0xf8, 0x06, 7]].concat());
        assert_eq!(table.of_theirs(later.clone()), later);
    }
}
