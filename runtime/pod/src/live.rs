//! A pod's running VM with its agent, as every call to them is made.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use proto_vmm::StopReport;

use crate::backend::{Agent, BackendError, BackendErrorKind, Vm};
use crate::error::{PodError, PodErrorKind};
use crate::usage::Meter;
use crate::vm_end;

/// How long a failed call waits for the VM's end as its possible cause.
const END_WITHIN: Duration = Duration::from_millis(200);

/// How long a VMM may take to end, asked and then killed. A process that takes longer hangs in the node's
/// kernel.
pub(crate) const ENDED_WITHIN: Duration = Duration::from_secs(30);

/// A running VM and its agent.
#[derive(Clone, Debug)]
pub(crate) struct Live {
    pub(crate) vm: Arc<dyn Vm>,
    pub(crate) agent: Arc<dyn Agent>,
    pub(crate) meter: Arc<Meter>,
    /// Why the VM was given up, once it was.
    given_up: Arc<OnceLock<String>>,
}

impl Live {
    pub(crate) fn new(vm: Arc<dyn Vm>, agent: Arc<dyn Agent>) -> Self {
        Live { vm, agent, meter: Arc::default(), given_up: Arc::default() }
    }

    /// Ends the VM of a hanging guest. Everything lost with the VM is reported with this reason.
    pub(crate) async fn give_up(&self, why: String) -> Result<(), PodError> {
        tracing::warn!(vmm_pid = self.vm.pid(), why, "a VM is given up");
        // A second reason would only be a consequence of the first.
        let _ = self.given_up.set(why);
        end(&*self.vm).await
    }

    /// Why the VM has ended, on one line.
    pub(crate) fn why_ended(&self, report: &StopReport) -> String {
        match self.given_up.get() {
            Some(why) => format!("the pod's VM was given up: {why}"),
            None => format!("the pod's VM ended: {}", vm_end::reason(&report.reason)),
        }
    }

    /// Runs a call to the agent or the VMM. If the VM ends meanwhile, the call ends with it.
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

    /// If a call failed because the VM ended, its error says so: this is the useful cause.
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

/// Ends a VM, and returns when its process is gone.
pub(crate) async fn end(vm: &dyn Vm) -> Result<(), PodError> {
    const DOING: &str = "ending the VM";
    match tokio::time::timeout(ENDED_WITHIN, vm.shutdown()).await {
        Ok(outcome) => outcome.map_err(|error| PodError::internal(DOING).because(error)),
        Err(_) => {
            let text = format!(
                "{DOING}: VMM process {} does not end after SIGKILL, within {} s",
                vm.pid(),
                ENDED_WITHIN.as_secs()
            );
            Err(PodError::internal(text))
        }
    }
}
