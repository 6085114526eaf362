//! What a pod's driver is asked to do.

use runtime_spec::{ContainerSpec, Resources};
use tokio::sync::oneshot;

use crate::error::PodError;

/// Where an answer goes. A caller that is gone does not stop the work.
pub(crate) type Reply<T> = oneshot::Sender<Result<T, PodError>>;

/// A request to a driver.
#[derive(Debug)]
pub(crate) enum Command {
    /// Makes a container; answers its id.
    CreateContainer(Box<ContainerSpec>, Reply<String>),
    /// Lets one go.
    StartContainer(String, Reply<()>),
    /// Changes one's limits.
    UpdateContainer(String, Box<Resources>, Reply<()>),
    /// Changes the pod's resources and its overhead.
    UpdatePod(Box<(Resources, Resources)>, Reply<()>),
    /// Forgets one that has ended or never ran; kills it if need be.
    RemoveContainer(String, Reply<()>),
    /// Stops the pod.
    Stop(Reply<()>),
    /// Stops and forgets the pod; the driver ends.
    Remove(Reply<()>),
}
