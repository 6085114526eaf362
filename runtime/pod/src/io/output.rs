//! The destinations of the output of a container's first process.

use std::sync::Arc;

use runtime_logs::LogFile;

use super::acks::Acks;
use super::followers::OutputFollowers;

/// The log, how much of the output it has, and the followers of the live output. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct ContainerOutput {
    pub(crate) log: LogFile,
    pub(crate) acks: Arc<Acks>,
    pub(crate) followers: Arc<OutputFollowers>,
}

impl ContainerOutput {
    pub(crate) fn new(log: LogFile, acks: Acks) -> ContainerOutput {
        ContainerOutput { log, acks: Arc::new(acks), followers: Arc::default() }
    }
}
