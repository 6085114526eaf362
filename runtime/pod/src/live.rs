//! A pod's running VM with its agent, as every call to them is made.

use std::sync::Arc;
use std::time::Duration;

use crate::backend::{Agent, BackendError, BackendErrorKind, Vm};
use crate::error::{PodError, PodErrorKind};
use crate::usage::Meter;
use crate::vm_end;

/// How long a call that failed waits for the VM's end, which may be its cause.
const END_WITHIN: Duration = Duration::from_millis(200);

/// A running VM and its agent.
#[derive(Clone, Debug)]
pub(crate) struct Live {
    pub(crate) vm: Arc<dyn Vm>,
    pub(crate) agent: Arc<dyn Agent>,
    pub(crate) meter: Arc<Meter>,
}

impl Live {
    pub(crate) fn new(vm: Arc<dyn Vm>, agent: Arc<dyn Agent>) -> Self {
        Live { vm, agent, meter: Arc::default() }
    }

    /// Runs a call to the agent or the VMM; a call that the VM's end leaves hanging ends with the VM.
    pub(crate) async fn call<T>(
        &self,
        doing: &str,
        call: impl Future<Output = Result<T, BackendError>>,
    ) -> Result<T, PodError> {
        tokio::select! {
            biased;
            outcome = call => match outcome {
                Ok(value) => Ok(value),
                Err(error) => Err(self.blame(doing, error).await),
            },
            report = self.vm.stopped() => {
                let text = format!("{doing}: {}", vm_end::describe(&report));
                Err(PodError::new(PodErrorKind::Unavailable, text))
            }
        }
    }

    /// A call that failed because the VM ended says so: that is the cause a person looks for.
    async fn blame(&self, doing: &str, error: BackendError) -> PodError {
        if error.kind() != BackendErrorKind::Unreachable {
            return error.during(doing);
        }
        match tokio::time::timeout(END_WITHIN, self.vm.stopped()).await {
            Ok(report) => {
                let text = format!("{doing}: {}", vm_end::describe(&report));
                PodError::new(PodErrorKind::Unavailable, text).because(error)
            }
            Err(_) => error.during(doing),
        }
    }
}
