//! The gate of every call to the pod. Calls are refused before the pod is configured. Once started, they run
//! to their end.

use std::future::Future;
use std::sync::Arc;

use ttrpc::Code;

use crate::containers::ContainerError;
use crate::pod::Pod;
use crate::rpc::status::{cancelled, refusal, refused};

/// Access to the pod, once it is configured.
#[derive(Clone, Debug)]
pub(super) struct Gate {
    /// The pod, configured or not.
    pub(super) pod: Arc<Pod>,
}

impl Gate {
    /// Returns the pod, if it is configured.
    pub(super) async fn pod(&self) -> ttrpc::Result<&Arc<Pod>> {
        if *self.pod.configured.lock().await {
            return Ok(&self.pod);
        }
        Err(refusal(Code::FAILED_PRECONDITION, "the pod is not configured yet"))
    }

    /// Runs `work` to its end, even if the caller is gone.
    pub(super) async fn run<T, F>(&self, work: impl FnOnce(Arc<Pod>) -> F) -> ttrpc::Result<T>
    where
        T: Send + 'static,
        F: Future<Output = Result<T, ContainerError>> + Send + 'static,
    {
        let pod = Arc::clone(self.pod().await?);
        let done = tokio::spawn(work(pod)).await.map_err(cancelled)?;
        done.map_err(|error| refused(&error))
    }
}
