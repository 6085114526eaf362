//! Stops and removes: containers, and the pod itself. Every step may be repeated.

use std::time::Duration;

use runtime_spans::{always, span, step};
use runtime_spec::ExitReason;
use tokio::time::timeout_at;

use super::{Driver, step};
use crate::blocking::blocking_within;
use crate::container::kill;
use crate::container::written::Written;
use crate::error::PodError;
use crate::live::Live;
use crate::record::{ContainerStage, PodStage};
use crate::start::undo;

/// How long killed containers may take to end and to flush their output, before the VM is taken
/// from under them.
const KILLED_WITHIN: Duration = Duration::from_secs(10);

/// How long the agent may take to sync and unmount.
pub(crate) const SHUTDOWN_WITHIN: Duration = Duration::from_secs(10);

/// How long removing the pod's files may take.
const REMOVED_WITHIN: Duration = Duration::from_secs(60);

/// Message of a removed container.
pub(crate) const REMOVED: &str = "the container was removed";

impl Driver {
    /// Kills, unmounts and forgets a container. The log stays.
    pub(super) async fn remove_container(&mut self, id: &str) -> Result<(), PodError> {
        let Some(container) = self.containers.get(id) else { return Ok(()) };
        let record = container.record.clone();
        // If the daemon is killed from here on, the container cannot be started any more.
        self.end_lost(id, ExitReason::Error, REMOVED).await;
        step::made(&record).drain_until_failure(self).await?;
        self.node.roster.withdraw_container(id);
        self.containers.remove(id);
        self.pin().await;
        self.publish();
        Ok(())
    }

    /// Keeps on record that a container has had its stop signal. Only a later daemon reads this.
    pub(super) async fn note_stop_signal(&mut self, id: &str) {
        if self.containers.note_stop_signal(id)
            && let Some(container) = self.containers.get(id)
        {
            self.node.records.settle_container_status(id, &container.status).await;
        }
    }

    /// Stops the pod: containers, guest, VM, network, disk.
    pub(super) async fn stop(&mut self) -> Result<(), PodError> {
        if self.status.stage == PodStage::Stopped {
            return Ok(());
        }
        if self.status.stage != PodStage::Undoing {
            self.status.stage = PodStage::Stopping;
        }
        // A full disk does not prevent stopping a pod: stopping frees the disk.
        self.save_status().await;
        self.publish();
        if let Some(live) = self.live.clone() {
            let written = Written::begin(&*live.vm);
            always(span!("kill the containers"), self.kill_containers(&live, written)).await;
        }
        self.be_heard_to_stop().await;
        if let Some(live) = self.live.clone() {
            self.shut_guest_down(&live).await;
        }
        self.stop_sockets().await;
        let vm = self.live.as_ref().map(|live| live.vm.clone());
        let undone = undo::undo(&self.node, &self.record, vm.as_ref(), self.status.vmm).await;
        if undone.vm_gone {
            self.end_all(ExitReason::Error, "the pod was stopped").await;
            self.live = None;
            self.plugs.vm_gone();
            self.status.vmm = None;
        }
        self.scratch_gone |= undone.scratch_gone;
        match undone.left {
            None => {
                self.status.stage = PodStage::Stopped;
                self.status.unclean = None;
                self.status.netns = None;
                self.status.ips.clear();
                self.save_status().await;
                self.publish();
                Ok(())
            }
            Some(left) => {
                self.status.unclean = Some(left.clone());
                self.save_status().await;
                self.publish();
                Err(PodError::internal(format!("stopping pod {}: {left}", self.record.id)))
            }
        }
    }

    /// Lets the guest write and release its disks. If it does not, its VMM is ended all the same.
    pub(super) async fn shut_guest_down(&self, live: &Live) {
        let shutdown = live.call("shutting the guest down", live.agent.shutdown());
        let shutdown = step(span!("shut the guest down"), shutdown);
        match tokio::time::timeout(SHUTDOWN_WITHIN, shutdown).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => {
                tracing::debug!(pod = self.record.id, error = error.chain(), "no orderly shutdown");
            }
            Err(_) => tracing::debug!(pod = self.record.id, "no orderly shutdown in time"),
        }
    }

    /// Stops the pod and forgets it with its containers.
    pub(super) async fn remove(&mut self) -> Result<(), PodError> {
        self.stop().await?;
        self.forget().await
    }

    /// Takes the pod off the record, the disk and the roster. Nothing else of it is left.
    pub(super) async fn forget(&mut self) -> Result<(), PodError> {
        let id = &self.record.id;
        let (places, pod) = (self.node.places.clone(), id.clone());
        let doing = format!("removing {}", places.pod_state_dir(id).display());
        let removing = blocking_within(REMOVED_WITHIN, &self.node.pools.state, &doing, move || {
            places.remove_state_dir(&pod)
        });
        step(span!("remove the directory"), removing).await?;
        let containers = self.containers.ids();
        self.node.records.forget(Some(id), &containers).await;
        for container in &containers {
            self.node.roster.withdraw_container(container);
        }
        self.node.roster.withdraw_pod(id);
        self.node.roster.free(id, &self.record.spec);
        Ok(())
    }

    /// Notifies plugins once of the pod's stop, unless its start is undone.
    async fn be_heard_to_stop(&mut self) {
        if self.status.stage == PodStage::Undoing || self.is_heard_to_stop || !self.node.plugins.hears() {
            return;
        }
        self.is_heard_to_stop = true;
        always(span!("let plugins hear"), self.node.plugins.pod_stops(&self.view())).await;
    }

    /// Kills all running containers and waits until their output is in the log, with a time limit. It waits
    /// longer while the VM writes.
    pub(super) async fn kill_containers(&mut self, live: &Live, mut written: Written) {
        let may_run = |stage| matches!(stage, ContainerStage::Running | ContainerStage::Unknown);
        let running = self.containers.ids_in(may_run);
        let kills = running.iter().map(|id| async move {
            if let Err(error) = kill::kill(live, id).await {
                tracing::debug!(container = id, error = error.chain(), "a container goes with its VM");
            }
        });
        let killed = timeout_at(written.next_look(KILLED_WITHIN), futures::future::join_all(kills)).await;
        if killed.is_err() {
            tracing::warn!(
                pod = self.record.id,
                "the agent does not answer; the VM is taken from under its pod"
            );
            return;
        }
        let pod = self.record.id.clone();
        let all_ended = async {
            while !self.containers.ids_in(|stage| stage == ContainerStage::Running).is_empty() {
                let Some(exited) = self.exits.recv().await else { return };
                self.exited(exited).await;
            }
        };
        let until_gone = async {
            tokio::select! {
                biased;
                () = all_ended => {}
                never = kill::keep_killing(live, &running) => match never {},
            }
        };
        tokio::pin!(until_gone);
        while timeout_at(written.next_look(KILLED_WITHIN), &mut until_gone).await.is_err() {
            if !written.goes_on(&*live.vm) {
                tracing::warn!(pod, "killed containers do not end; the VM is taken from under them");
                return;
            }
        }
    }
}
