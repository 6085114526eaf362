//! Requests to a pod's driver.

use runtime_spans::Carried;
use runtime_spec::{ContainerSpec, Resources};
use tokio::sync::oneshot;
use tokio::time::Instant;
use tracing::Span;

use crate::error::PodError;
use crate::plugins::{Asking, PluginRefusal};

/// The channel for an answer. If the caller has gone, the work still goes on.
pub(crate) type Reply<T> = oneshot::Sender<Result<T, PodError>>;

/// A request on its way to a driver.
#[derive(Debug)]
pub(crate) struct Asked {
    pub(crate) command: Command,
    /// The spans of the requesting call. The driver's work belongs to them, even after the caller has gone.
    pub(crate) call: Carried,
    /// The span of waiting for a busy driver; the driver ends it.
    pub(crate) waiting: Span,
}

/// A container to be created.
#[derive(Debug)]
pub(crate) struct NewContainerSpec {
    /// The container's id, if already known.
    pub(crate) id: Option<String>,
    pub(crate) spec: ContainerSpec,
    /// Kept until the container is published.
    pub(crate) asking: Option<Box<dyn Asking>>,
}

/// A request to a driver.
#[derive(Debug)]
pub(crate) enum Command {
    /// Makes a container and answers with its id.
    CreateContainer(Box<NewContainerSpec>, Reply<String>),
    /// Lets a created container's program run.
    StartContainer(String, Reply<()>),
    /// Ends a created container whose start plugins refuse, and answers with their refusal.
    RefuseStart(String, PluginRefusal, Reply<()>),
    /// Changes nothing. The answer means all earlier requests are done.
    TakeTurn(Reply<()>),
    /// Keeps on record that a container has had its stop signal. No answer.
    NoteStopSignal(String),
    /// Changes a container's limits.
    UpdateContainer(String, Box<Resources>, Reply<()>),
    /// Changes the pod's resources and its overhead.
    UpdatePod(Box<(Resources, Resources)>, Reply<()>),
    /// Removes a container; kills it if need be.
    RemoveContainer(String, Reply<()>),
    /// Ends the VM: the node goes down. Killed containers may write until this time.
    PowerOff(Instant, Reply<()>),
    /// Stops the pod.
    Stop(Reply<()>),
    /// Stops and forgets the pod; the driver ends.
    Remove(Reply<()>),
}
