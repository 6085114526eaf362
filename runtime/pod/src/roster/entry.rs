//! The roster's entries for pods and containers: the published view, and the handles beside it.

use std::sync::Arc;

use oci_spec::runtime::Process;
use tokio::sync::{mpsc, watch};

use crate::command::Asked;
use crate::container::stop_signal::StopSignal;
use crate::error::PodError;
use crate::io::output::ContainerOutput;
use crate::live::Live;
use crate::view::{ContainerState, ContainerView, Phase, PodView};

/// How a pod's start ended; `None` while it is under way.
pub(crate) type Outcome = Option<Result<String, PodError>>;

/// A published pod.
#[derive(Clone, Debug)]
pub(crate) struct PodEntry {
    pub(crate) view: Arc<PodView>,
    pub(crate) commands: mpsc::Sender<Asked>,
    pub(crate) live: Option<Live>,
    pub(crate) phases: Arc<Vec<Phase>>,
    /// Whether the pod's scratch disk is on the node, as far as the driver knows. It outlives a dead VM.
    pub(crate) has_scratch: bool,
    /// Whether the pod's driver takes commands: false while the driver recovers the pod of an earlier daemon.
    pub(crate) recovered: watch::Receiver<bool>,
}

/// A published container.
#[derive(Clone, Debug)]
pub(crate) struct ContainerEntry {
    pub(crate) view: Arc<ContainerView>,
    /// The first process. Exec takes its environment from it.
    pub(crate) process: Arc<Process>,
    pub(crate) output: ContainerOutput,
    /// Whether the container has had its stop signal.
    pub(crate) asked: StopSignal,
    /// Whether the container has ended.
    pub(crate) ended: watch::Receiver<bool>,
    /// Whether the guest has reported the container's end.
    pub(crate) reported: watch::Receiver<bool>,
}

impl ContainerEntry {
    /// The container's id, and whether it runs.
    pub(crate) fn known(&self) -> (String, bool) {
        (self.view.id.clone(), self.view.state == ContainerState::Running)
    }
}
