//! What every step of a start has, and what a failed one leaves.

use std::sync::Arc;

use super::stopwatch::Stopwatch;
use crate::backend::Vm;
use crate::error::PodError;
use crate::node::Node;
use crate::record::PodRecord;

/// The pod that is started, and where.
#[derive(Debug)]
pub(crate) struct StartContext {
    pub(crate) node: Arc<Node>,
    pub(crate) record: Arc<PodRecord>,
    pub(crate) watch: Stopwatch,
}

impl StartContext {
    pub(crate) fn id(&self) -> &str {
        &self.record.id
    }
}

/// A step failed. What was made up to there must be undone; `machine` is known if it was spawned.
#[derive(Debug)]
pub(crate) struct Failed {
    pub(crate) error: PodError,
    pub(crate) vm: Option<Arc<dyn Vm>>,
}
