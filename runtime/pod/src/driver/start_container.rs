//! Lets a created container's program run.

use runtime_spans::{span, step};
use runtime_spec::ExitReason;

use super::Driver;
use crate::clock;
use crate::container::{admission, kill};
use crate::error::PodError;
use crate::io::copiers::Copiers;
use crate::live::Live;
use crate::record::{ContainerStage, ContainerStatus};

/// Exit code of a container whose start failed for a reason other than its program.
const START_ERROR_CODE: i32 = 128;

impl Driver {
    /// Starts the container. After a failed start it is `Exited`.
    pub(super) async fn start_container(&mut self, id: &str) -> Result<(), PodError> {
        let stage = self.containers.find(id)?.status.stage;
        admission::start(id, self.status.stage, stage)?;
        let live = self.live()?;
        self.put_stage(id, ContainerStage::Starting).await?;
        match self.release(&live, id).await {
            Ok(copiers) => {
                self.running(id).await;
                self.watch(&live, id, copiers);
                Ok(())
            }
            Err(error) => {
                self.not_started(&live, id, &error).await;
                Err(error)
            }
        }
    }

    /// Ends a container whose start plugins refuse, like one whose start failed: a kubelet starts the next
    /// attempt after a pause, but one it finds `Created` at once.
    pub(super) async fn refuse_start(&mut self, id: &str, refusal: PodError) -> Result<(), PodError> {
        let stage = self.containers.find(id)?.status.stage;
        admission::start(id, self.status.stage, stage)?;
        let live = self.live()?;
        self.not_started(&live, id, &refusal).await;
        Err(refusal)
    }

    /// Opens the output first, so no byte has to wait, then lets the program run.
    async fn release(&self, live: &Live, id: &str) -> Result<Copiers, PodError> {
        let container = self.containers.find(id)?;
        let opening = Copiers::open(live, id, &container.record.spec, &container.output);
        let copiers = step(span!("open the output"), opening).await?;
        let starting = live.call("starting the container", live.agent.start_container(id));
        step(span!("start in the guest"), starting).await?;
        Ok(copiers)
    }

    async fn running(&mut self, id: &str) {
        let Some(container) = self.containers.get(id) else { return };
        // The clock may have been set back meanwhile.
        let started_at_ns = clock::now_ns().max(container.record.created_at_ns);
        let stage = ContainerStage::Running;
        self.containers.set_status(id, ContainerStatus { stage, started_at_ns, ..container.status.clone() });
        self.save_container(id).await;
    }

    /// Notes a container's failed start. If the agent has not reported it itself, the program may run all the
    /// same, so it is killed. If this fails too, its state is unknown until the container is stopped.
    async fn not_started(&mut self, live: &Live, id: &str, error: &PodError) {
        if error.start_failure().is_none()
            && let Err(kept) = kill::kill(live, id).await
        {
            self.containers.doubt(id, &format!("it may run: {}; {}", error.chain(), kept.chain()));
            self.watch_again(live, id);
            return self.save_container(id).await;
        }
        let (reason, code) = why_not_started(error);
        if self.containers.exit(id, clock::now_ns(), code, reason, error.chain()) {
            self.save_container(id).await;
        }
    }

    /// Commits the stage, then takes it on.
    async fn put_stage(&mut self, id: &str, stage: ContainerStage) -> Result<(), PodError> {
        let before = self.containers.find(id)?.status.clone();
        let status = ContainerStatus { stage, ..before.clone() };
        if let Err(error) = self.node.records.put_container_status(id, &status).await {
            // A failing disk may have stored it all the same.
            self.node.records.settle_container_status(id, &before).await;
            return Err(error);
        }
        self.containers.set_status(id, status);
        Ok(())
    }

    /// Settles and publishes the container's state; wakes all waiting for its end.
    pub(super) async fn save_container(&self, id: &str) {
        let Some(container) = self.containers.get(id) else { return };
        self.node.records.settle_container_status(id, &container.status).await;
        self.node.roster.publish_container(container.entry());
        if container.status.stage == ContainerStage::Exited {
            container.ended.send_replace(true);
        }
    }
}

/// Reason and exit code of a container's failed start, as other runtimes and shells spell them. Either its
/// program cannot be run, or something else prevented the start.
fn why_not_started(error: &PodError) -> (ExitReason, i32) {
    match error.start_failure() {
        Some(failure) => (ExitReason::ContainerCannotRun, i32::from(failure.exit_code())),
        None => (ExitReason::StartError, START_ERROR_CODE),
    }
}
