//! Values of one metric in Prometheus' form. Pure.

use prometheus::core::Collector;
use prometheus::proto::MetricFamily;
use prometheus::{IntGaugeVec, Opts};

/// Values of one metric, by its labels.
pub(super) struct Figures {
    pub(super) name: &'static str,
    pub(super) help: &'static str,
    pub(super) labels: &'static [&'static str],
    pub(super) values: Vec<(Vec<&'static str>, u64)>,
}

/// `None` for a name or a label forbidden by Prometheus. That would be our bug.
pub(super) fn family(figures: Figures) -> Option<Vec<MetricFamily>> {
    let gauges = IntGaugeVec::new(Opts::new(figures.name, figures.help), figures.labels).ok()?;
    for (labels, value) in figures.values {
        gauges.with_label_values(&labels).set(i64::try_from(value).unwrap_or(i64::MAX));
    }
    Some(gauges.collect())
}
