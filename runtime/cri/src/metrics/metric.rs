//! One metric: the form of a table's entry, and the sources of its values.

use proto_cri::v1;
use runtime_pod::{ContainerUsage, ContainerView, GuestUsage, PodUsage, PodView};

/// One metric.
pub(super) struct Metric {
    pub(super) name: &'static str,
    pub(super) help: &'static str,
    pub(super) kind: v1::MetricType,
    /// Names of the labels beyond the common ones.
    pub(super) labels: &'static [&'static str],
    /// Values for a container.
    pub(super) container: fn(&ContainerSource<'_>) -> Values,
    /// Values for a pod as a whole.
    pub(super) pod: fn(&PodSource<'_>) -> Values,
}

/// A metric's values, each with its further labels' values.
pub(super) type Values = Vec<(Vec<String>, u64)>;

/// A pod's usage.
pub(crate) struct PodSource<'a> {
    pub(crate) pod: &'a PodView,
    pub(crate) usage: &'a PodUsage,
    /// The guest's part of the usage.
    pub(crate) guest: &'a GuestUsage,
    /// Time of the request, nanoseconds since the epoch. Older values were not collected for it.
    pub(crate) began_ns: i64,
}

/// A container's usage.
pub(super) struct ContainerSource<'a> {
    pub(super) pod: &'a PodSource<'a>,
    pub(super) view: &'a ContainerView,
    pub(super) usage: &'a ContainerUsage,
}

pub(super) const fn counter(name: &'static str, help: &'static str) -> Metric {
    Metric { name, help, kind: v1::MetricType::Counter, labels: &[], container: |_| vec![], pod: |_| vec![] }
}

pub(super) const fn gauge(name: &'static str, help: &'static str) -> Metric {
    Metric { kind: v1::MetricType::Gauge, ..counter(name, help) }
}

/// The only value of a metric without further labels.
pub(super) fn one(value: u64) -> Values {
    vec![(Vec::new(), value)]
}

/// The only value of a metric without further labels, if there is one.
pub(super) fn maybe(value: Option<u64>) -> Values {
    value.map(one).unwrap_or_default()
}

/// Metrics count whole seconds: their values are integers (api.proto, `Metric`).
pub(super) fn seconds(nanoseconds: u64) -> u64 {
    nanoseconds / 1_000_000_000
}
