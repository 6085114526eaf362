//! A driver for a pod created by an earlier daemon.
//!
//! ```text
//!  found ─── listed as on record ──► recover ──► run
//!   Ready ────── its VM answers ───► Ready, watchers go on
//!     └───────── it does not ──────► killed, Dead             (a VM declared dead is killed)
//!   Stopping ─── its VM answers ───► the stop goes on
//!     └───────── undone ───────────► Stopped, or unclean
//!   Starting, Undoing ── undone ───► forgotten, or unclean    (not listed before)
//! ```
//!
//! An unrecoverable container stays listed and keeps its name: in state Unknown, with the reason, until it
//! can be removed.

use std::sync::Arc;
use std::time::Duration;

use proto_vmm::Slot;
use tokio::sync::watch;

use super::{Driver, step};
use crate::blocking::within;
use crate::container::{Container, watcher};
use crate::error::{PodError, PodErrorKind};
use crate::host::vmm_process;
use crate::io::copiers::Copiers;
use crate::live::Live;
use crate::node::Node;
use crate::record::{
    ContainerOnRecord, ContainerRecord, ContainerStage, ContainerStatus, PodRecord, PodStage, PodStatus,
    VmmProcess,
};
use crate::roster::Outcome;
use crate::start::undo;

/// How long an agent may take to forget containers unknown to any caller.
const UNDO_WITHIN: Duration = Duration::from_secs(60);

/// The message of a container whose start was interrupted by the daemon's end.
const HALF_STARTED: &str = "the daemon ended while it started the container";

/// A listed pod on record, before its recovery.
#[derive(Debug)]
pub(crate) struct FoundPod {
    driver: Driver,
    /// Containers with an unfinished creation, unknown to any caller.
    half_made: Vec<ContainerOnRecord>,
    /// The channel for other callers waiting for the same pod.
    outcome: watch::Sender<Outcome>,
}

impl FoundPod {
    /// Finds a pod on record. A pod already known to callers is listed at once, as on record, with its
    /// containers. Nothing is requested of it yet.
    pub(crate) fn list(
        node: Arc<Node>,
        record: Arc<PodRecord>,
        status: PodStatus,
        left: Vec<ContainerOnRecord>,
    ) -> FoundPod {
        let outcome = node.roster.hold(&record, node.start.now().name_of(&record));
        let known = !matches!(status.stage, PodStage::Starting | PodStage::Undoing);
        let mut driver = Driver::new(node, record, status, None);
        driver.recovered.send_replace(false);
        if driver.status.stage != PodStage::Stopped {
            for (record, _) in &left {
                driver.plugs.lease_again(&driver.node.backends, record);
            }
        }
        let (half_made, made): (Vec<_>, Vec<_>) =
            left.into_iter().partition(|(_, status)| status.stage == ContainerStage::Creating);
        for (record, status) in made {
            let mut container = driver.found(record, status);
            if container.status.stage == ContainerStage::Starting {
                container.doubt(HALF_STARTED);
            }
            driver.containers.insert(container);
        }
        if known {
            driver.publish();
            driver.publish_containers();
        }
        FoundPod { driver, half_made, outcome }
    }

    /// Recovers the pod, and drives it from then on. `lost` lists containers without a readable record, of
    /// any pod.
    pub(crate) async fn recover(self, lost: Arc<Vec<String>>) {
        let FoundPod { mut driver, half_made, outcome } = self;
        if let Some(vmm) = driver.status.vmm {
            driver.status.vmm = Some(driver.of_this_boot(vmm).await);
        }
        let vm_gone = match driver.status.stage {
            PodStage::Stopping => driver.attach_to_stop().await,
            PodStage::Starting | PodStage::Undoing => driver.finish_undo().await,
            PodStage::Ready => driver.attach().await,
            PodStage::Dead => driver.kill_dead().await,
            PodStage::Stopped => true,
        };
        if driver.status.stage == PodStage::Undoing && driver.status.unclean.is_none() {
            match driver.forget_half_started(&half_made).await {
                Ok(()) => {
                    let text = "an earlier daemon ended while it started this pod; all of it is undone";
                    outcome.send_replace(Some(Err(PodError::new(PodErrorKind::Unavailable, text))));
                    return;
                }
                Err(error) => driver.status.unclean = Some(error.chain()),
            }
        }
        driver.save_status().await;
        driver.recover_sockets().await;
        match driver.live.clone() {
            Some(live) => {
                driver.resize_again(&live).await;
                driver.recover_containers(&live, half_made, &lost).await;
                driver.keep_found_volumes(&live);
            }
            None => driver.end_containers(half_made, vm_gone).await,
        }
        driver.pin().await;
        driver.look_at_room();
        driver.await_room();
        driver.publish();
        driver.recovered.send_replace(true);
        outcome.send_replace(Some(driver.outcome()));
        driver.go_on_stopping().await;
        driver.run().await;
    }
}

impl Driver {
    /// A container on record.
    fn found(&self, record: ContainerRecord, status: ContainerStatus) -> Container {
        Container::found(&self.node, &self.record.spec, Arc::new(record), status)
    }

    /// The outcome of this pod's start, for callers asking for the same pod.
    fn outcome(&self) -> Result<String, PodError> {
        if self.status.stage == PodStage::Ready {
            return Ok(self.record.id.clone());
        }
        let text = format!("pod {} was found again, and is not ready", self.record.id);
        Err(PodError::new(PodErrorKind::AlreadyExists, text))
    }

    /// Determines the boot of a VMM recorded without one.
    async fn of_this_boot(&self, vmm: VmmProcess) -> VmmProcess {
        if vmm.boot.is_some() {
            return vmm;
        }
        let socket = self.node.places.control_socket(&self.record.id);
        let finding = self.node.pools.kernel.run(move || vmm_process::of_this_boot(vmm, &socket));
        finding.await.unwrap_or(vmm)
    }

    /// Continues an undo, or begins the undo of a start. Returns whether the VM is gone.
    pub(super) async fn finish_undo(&mut self) -> bool {
        let undone = undo::undo(&self.node, &self.record, None, self.status.vmm).await;
        if undone.vm_gone {
            self.status.vmm = None;
            self.plugs.vm_gone();
        }
        self.scratch_gone = undone.scratch_gone;
        self.status.unclean = undone.left;
        match self.status.stage {
            PodStage::Stopping if self.status.unclean.is_none() => {
                self.status.stage = PodStage::Stopped;
                self.status.netns = None;
                self.status.ips.clear();
            }
            PodStage::Starting => self.status.stage = PodStage::Undoing,
            _ => {}
        }
        undone.vm_gone
    }

    /// Forgets a pod whose half-done start has been undone.
    async fn forget_half_started(&mut self, half_made: &[ContainerOnRecord]) -> Result<(), PodError> {
        let containers: Vec<String> = half_made.iter().map(|(record, _)| record.id.clone()).collect();
        self.node.records.forget(None, &containers).await;
        self.forget().await
    }

    /// Goes on with the stop of an earlier daemon. It is answered to nobody; its caller repeats the call.
    async fn go_on_stopping(&mut self) {
        if self.status.stage == PodStage::Stopping
            && self.live.is_some()
            && let Err(error) = self.stop().await
        {
            tracing::warn!(error = error.chain(), "the stop that an earlier daemon began failed");
        }
    }

    /// Continues with the containers in the VM.
    async fn recover_containers(&mut self, live: &Live, half_made: Vec<ContainerOnRecord>, lost: &[String]) {
        for id in self.containers.ids() {
            self.recover_container(live, &id).await;
        }
        for (record, status) in half_made {
            self.undo_half_made(live, record, status).await;
        }
        for id in lost {
            let removing = live.call("removing a lost container", live.agent.remove_container(id));
            if let Err(why) = within(UNDO_WITHIN, "removing a lost container", removing).await {
                tracing::error!(
                    container = id,
                    pod = self.record.id,
                    error = why.chain(),
                    "a lost container stays"
                );
            }
        }
        self.compare_plugs(live).await;
    }

    /// Counts the container's devices, and continues watching it.
    async fn recover_container(&mut self, live: &Live, id: &str) {
        let Some(container) = self.containers.get(id) else { return };
        self.plugs.hold(&container.record);
        if container.status.stage == ContainerStage::Unknown {
            // An unreadable status is on no record. Without a new one, the next start would find a
            // half-created container and undo it.
            self.save_container(id).await;
        }
        self.watch_again(live, id);
    }

    /// Watches a running or unknown container again, from the last byte in its log.
    pub(super) fn watch_again(&self, live: &Live, id: &str) {
        let Some(container) = self.containers.get(id) else { return };
        if matches!(container.status.stage, ContainerStage::Running | ContainerStage::Unknown) {
            let copiers = Copiers::resume(live, id, &container.record.spec, &container.output);
            self.watch(live, id, copiers);
        }
    }

    /// Watches a container until its end.
    pub(super) fn watch(&self, live: &Live, id: &str, copiers: Copiers) {
        let Some(container) = self.containers.get(id) else { return };
        watcher::watch(
            live.clone(),
            id.to_owned(),
            copiers,
            container.reported.clone(),
            self.exit_sender.clone(),
        );
    }

    /// Undoes an unfinished creation. The guest may have the container or not. A container that cannot be
    /// removed is listed.
    async fn undo_half_made(&mut self, live: &Live, record: ContainerRecord, status: ContainerStatus) {
        self.plugs.hold(&record);
        let container = self.found(record, status);
        let record = container.record.clone();
        let undoing = step::made(&record).drain_until_failure(self);
        let Err(error) = within(UNDO_WITHIN, "removing a half-made container", undoing).await else { return };
        let id = record.id.clone();
        tracing::error!(container = id, error = error.chain(), "a half-made container is not removed");
        self.containers.insert(container);
        self.containers
            .doubt(&id, &format!("its creation was not finished, and not undone: {}", error.chain()));
        self.watch_again(live, &id);
        self.save_container(&id).await;
    }

    /// Ends the containers of a pod without a VM. If its VM could not be ended, the containers' state is
    /// unknown.
    async fn end_containers(&mut self, half_made: Vec<ContainerOnRecord>, vm_gone: bool) {
        let half_made: Vec<String> = half_made.into_iter().map(|(record, _)| record.id).collect();
        self.node.records.forget(None, &half_made).await;
        if vm_gone {
            let why = self.status.message.clone().unwrap_or_else(|| "the pod was stopped".to_owned());
            let (reason, why) = self.loss(why).await;
            return self.end_all(reason, &why).await;
        }
        let why = self.status.unclean.clone().unwrap_or_default();
        for id in self.containers.ids() {
            self.containers.doubt(&id, &format!("the pod's VM could not be ended: {why}"));
            self.save_container(&id).await;
        }
    }

    /// Compares the devices on record with the VMM's.
    async fn compare_plugs(&mut self, live: &Live) {
        let pod = &self.record.id;
        match self.plugs.compare(live).await {
            Ok(missing) if missing.is_empty() => {}
            Ok(missing) => {
                let slots: Vec<u8> = missing.into_iter().map(Slot::number).collect();
                tracing::error!(pod, ?slots, "a VM lacks devices recorded for its containers");
            }
            Err(error) => {
                tracing::error!(
                    pod,
                    error = error.chain(),
                    "a VM's devices are not compared with the records"
                );
            }
        }
    }
}
