//! One metric: the form of a table's entry, and the sources of its values.

use proto_cri::v1;
use runtime_pod::{ContainerUsage, ContainerView, GuestUsage, PodUsage, PodView};

/// One metric.
pub(crate) struct Metric {
    pub(crate) name: &'static str,
    pub(crate) help: &'static str,
    pub(crate) kind: v1::MetricType,
    /// Names of the labels beyond the common ones.
    pub(super) labels: &'static [&'static str],
    /// Values for a container.
    pub(super) container: fn(&ContainerSource<'_>) -> Values,
    /// Values for a pod as a whole.
    pub(super) pod: fn(&PodSource<'_>) -> Values,
    /// The source of the pod's values. Containers' are the guest's.
    pub(super) pod_origin: Origin,
}

/// Where figures come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    /// The VM's cgroup on the node.
    Node,
    /// The guest.
    Guest,
}

/// A value before it has the form of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Figure {
    /// A count, or a number of bytes.
    Count(u64),
    /// A time in nanoseconds, shown in seconds.
    Nanoseconds(u64),
}

impl Figure {
    /// The value as an integer, seconds rounded down: CRI has no others (api.proto, `Metric`).
    pub(crate) fn whole(self) -> u64 {
        match self {
            Figure::Count(count) => count,
            Figure::Nanoseconds(nanoseconds) => nanoseconds / 1_000_000_000,
        }
    }

    /// The value as Prometheus has it. Bytes and nanoseconds stay below 2^53 for a century or so.
    pub(crate) fn exact(self) -> f64 {
        match self {
            Figure::Count(count) => count as f64,
            Figure::Nanoseconds(nanoseconds) => nanoseconds as f64 / 1e9,
        }
    }
}

impl From<u64> for Figure {
    fn from(count: u64) -> Self {
        Figure::Count(count)
    }
}

/// A metric's values, each with its further labels' values.
pub(super) type Values = Vec<(Vec<String>, Figure)>;

/// A pod's usage.
pub(crate) struct PodSource<'a> {
    pub(crate) pod: &'a PodView,
    pub(crate) usage: &'a PodUsage,
    /// The guest's part of the usage; `None` if it has not answered lately.
    pub(crate) guest: Option<&'a GuestUsage>,
    /// Time of the request, nanoseconds since the epoch. Older values were not collected for it.
    pub(crate) began_ns: i64,
}

/// A container's usage.
pub(super) struct ContainerSource<'a> {
    pub(super) guest: &'a GuestUsage,
    pub(super) view: &'a ContainerView,
    pub(super) usage: &'a ContainerUsage,
}

pub(super) const fn counter(name: &'static str, help: &'static str) -> Metric {
    Metric {
        name,
        help,
        kind: v1::MetricType::Counter,
        labels: &[],
        container: |_| vec![],
        pod: |_| vec![],
        pod_origin: Origin::Node,
    }
}

pub(super) const fn gauge(name: &'static str, help: &'static str) -> Metric {
    Metric { kind: v1::MetricType::Gauge, ..counter(name, help) }
}

/// The only value of a metric without further labels.
pub(super) fn one(value: impl Into<Figure>) -> Values {
    vec![(Vec::new(), value.into())]
}

/// The only value of a metric without further labels, if there is one.
pub(super) fn maybe(value: Option<impl Into<Figure>>) -> Values {
    value.map(one).unwrap_or_default()
}

/// A time shown in seconds.
pub(super) fn seconds(nanoseconds: u64) -> Figure {
    Figure::Nanoseconds(nanoseconds)
}
