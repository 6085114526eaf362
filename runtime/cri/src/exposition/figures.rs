//! Figures of one name as Prometheus has them. Pure.

use prometheus::core::Collector;
use prometheus::proto::MetricFamily;
use prometheus::{IntGaugeVec, Opts};

/// Figures of one name, by the values of its labels.
pub(super) struct Figures {
    pub(super) name: &'static str,
    pub(super) help: &'static str,
    pub(super) labels: &'static [&'static str],
    pub(super) values: Vec<(Vec<&'static str>, u64)>,
}

/// `None` for a name or a label that Prometheus does not allow, which would be a fault of ours.
pub(super) fn family(figures: Figures) -> Option<Vec<MetricFamily>> {
    let gauges = IntGaugeVec::new(Opts::new(figures.name, figures.help), figures.labels).ok()?;
    for (labels, value) in figures.values {
        gauges.with_label_values(&labels).set(i64::try_from(value).unwrap_or(i64::MAX));
    }
    Some(gauges.collect())
}
