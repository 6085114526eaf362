//! RPCs about the usage of pods and containers, one file each.

pub(crate) mod container;
mod figures;
pub(crate) mod list_containers;
pub(crate) mod list_metrics;
pub(crate) mod list_pods;
pub(crate) mod metric_descriptors;
pub(crate) mod pod;
pub(crate) mod stream_containers;
pub(crate) mod stream_metrics;
pub(crate) mod stream_pods;
