//! The context of every step of a start, and the remains of a failed one.

use std::sync::Arc;
use std::time::Duration;

use super::stopwatch::Stopwatch;
use crate::backend::Vm;
use crate::error::PodError;
use crate::node::Node;
use crate::record::PodRecord;

/// How long making each file or directory of a pod may take.
pub(crate) const MADE_WITHIN: Duration = Duration::from_secs(60);

/// The pod being started, and its node.
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

/// A step failed. All steps so far must be undone; the VM is known if it was spawned.
#[derive(Debug)]
pub(crate) struct Failed {
    pub(crate) error: PodError,
    pub(crate) vm: Option<Arc<dyn Vm>>,
}
