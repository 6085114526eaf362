//! A pod's driver: the only task that changes the pod.
//!
//! ```text
//!   Pods ── Command ──►┌────────┐── commit ──► store
//!   watchers ─ Exited ─►│ Driver │── publish ─► roster ──► readers
//!   VM ── ended ───────►└────────┘── calls ───► agent, VMM, network
//! ```
//!
//! Each transition is committed before the driver acts on it, and each outcome before it is reported. Work
//! with long waits (stopping a container, exec) runs in tasks of its own, so the inbox stays open.

mod attach;
mod create_container;
mod exits;
mod full_disks;
mod host_sockets;
mod mounts;
mod power_off;
mod recover;
mod size;
mod start_container;
mod step;
pub(crate) mod stop;
mod stop_with_containers;
mod update_limits;
mod volume_disks;
mod volumes;

pub(crate) use self::recover::FoundPod;
#[cfg(test)]
pub(crate) use self::stop::REMOVED;

use std::collections::BTreeSet;
use std::ops::ControlFlow;
use std::sync::Arc;

use proto_vmm::StopReport;
use runtime_spans::{Carried, always, logged, span};
use tokio::sync::{mpsc, watch};

use crate::capacity::Capacity;
use crate::capacity::awaited_room::AwaitedRoom;
use crate::command::{Asked, Command, Reply};
use crate::container::containers::Containers;
use crate::container::watcher::Exited;
use crate::counters;
use crate::error::{PodError, PodErrorKind};
use crate::full_disks::FullDisks;
use crate::live::Live;
use crate::node::Node;
use crate::plugins::Asking;
use crate::plugs::Plugs;
use crate::record::{PodRecord, PodStage, PodStatus, VmmProcess};
use crate::roster::{Outcome, PodEntry};
use crate::sockets::server::SocketServer;
use crate::spans;
use crate::spares::Spare;
use crate::start::{self, Failed, undo};
use crate::templates::Template;
use crate::view::{PodState, PodView};
use crate::volumes::keeper::Keeper;

/// Queue length for requests to a busy driver; further callers wait to enqueue.
const INBOX: usize = 64;

/// Queue length for exits; watchers wait to enqueue.
const EXITS: usize = 64;

/// A pod, with everything owned by its driver.
#[derive(Debug)]
pub(crate) struct Driver {
    node: Arc<Node>,
    record: Arc<PodRecord>,
    status: PodStatus,
    live: Option<Live>,
    containers: Containers,
    plugs: Plugs,
    capacity: Capacity,
    /// When to look at the pod's cgroup again, if the VM would have more memory in a larger one.
    awaited_room: AwaitedRoom,
    /// Keeps the volumes in the guest as they are on the node, once there are any.
    keeper: Option<Keeper>,
    /// Leads programs of the guest to sockets of the node, if they may reach any.
    sockets: Option<SocketServer>,
    inbox: mpsc::Receiver<Asked>,
    commands: mpsc::Sender<Asked>,
    exits: mpsc::Receiver<Exited>,
    exit_sender: mpsc::Sender<Exited>,
    /// False while a pod of an earlier daemon is being recovered.
    recovered: watch::Sender<bool>,
    /// Whether the VM of a ready pod was not found again.
    lost: bool,
    /// Number of the VM's disks waiting for free space on the node.
    full_disks: FullDisks,
    /// The template of the VM, until its first container is made.
    template: Option<Arc<Template>>,
    /// The VMM's groups for files of the node, as far as this daemon knows.
    shared_groups: BTreeSet<u32>,
    /// Whether plugins have been notified of the pod's stop.
    is_heard_to_stop: bool,
    /// Whether the scratch disk is known to be removed.
    scratch_gone: bool,
}

impl Driver {
    pub(crate) fn new(
        node: Arc<Node>,
        record: Arc<PodRecord>,
        status: PodStatus,
        live: Option<Live>,
    ) -> Driver {
        let (commands, inbox) = mpsc::channel(INBOX);
        let (exit_sender, exits) = mpsc::channel(EXITS);
        let capacity = Capacity::new(&record, status.capacity.clone());
        let full_disks = FullDisks::of(live.as_ref());
        let scratch_gone = status.stage == PodStage::Stopped;
        Driver {
            node,
            record,
            status,
            live,
            containers: Containers::default(),
            plugs: Plugs::new(),
            capacity,
            awaited_room: AwaitedRoom::default(),
            keeper: None,
            sockets: None,
            inbox,
            commands,
            exits,
            exit_sender,
            recovered: watch::Sender::new(true),
            lost: false,
            full_disks,
            template: None,
            shared_groups: BTreeSet::new(),
            is_heard_to_stop: false,
            scratch_gone,
        }
    }

    /// Starts a pod, with its spare VM if there is one, reports the outcome, and drives the pod from then on.
    /// `call` has the spans of the requesting call. The start belongs to it even after the caller has gone;
    /// later work does not.
    pub(crate) async fn start(
        node: Arc<Node>,
        record: PodRecord,
        spare: Option<Spare>,
        outcome_sender: watch::Sender<Outcome>,
        call: Carried,
    ) {
        let own = spans::driver(&record.id);
        let starting = call.around(Driver::start_and_report(node, record, spare, outcome_sender));
        let started = starting.await;
        if let Some(driver) = started {
            logged(own, driver.run()).await;
        }
    }

    /// Starts a pod, or undoes the start. Returns the driver, if there is a pod to drive.
    async fn start_and_report(
        node: Arc<Node>,
        record: PodRecord,
        spare: Option<Spare>,
        outcome_sender: watch::Sender<Outcome>,
    ) -> Option<Driver> {
        let record = Arc::new(record);
        let outcome = match start::start(node.clone(), record.clone(), spare).await {
            Ok(ready) => Driver::ready(&node, &record, ready).await,
            Err(failed) => Err(failed),
        };
        let outcome = match outcome {
            Ok(driver) => driver.introduced().await,
            Err(failed) => Err(failed),
        };
        let failed = match outcome {
            Ok((driver, _asking)) => {
                counters::pod_started(&driver.status.phases);
                driver.warn_of_settings();
                driver.publish();
                outcome_sender.send_replace(Some(Ok(record.id.clone())));
                return Some(driver);
            }
            Err(failed) => failed,
        };
        counters::pod_start_failed();
        let (error, driver) = always(span!("undo"), Driver::undo_start(node, record, failed)).await;
        outcome_sender.send_replace(Some(Err(error)));
        driver
    }

    /// Asks plugins whether the pod may run. The second returned value is kept until the pod is published.
    async fn introduced(self) -> Result<(Driver, Box<dyn Asking>), Failed> {
        let asking = self.node.plugins.begin();
        if asking.is_alone() {
            return Ok((self, asking));
        }
        let asked = runtime_spans::step(span!("ask plugins"), asking.run_pod(&self.view())).await;
        match asked {
            Ok(()) => Ok((self, asking)),
            Err(refusal) => {
                let vm = self.live.as_ref().map(|live| live.vm.clone());
                Err(Failed { error: refusal.into(), vm })
            }
        }
    }

    /// Warns of settings of the pod's network not applied in its VM.
    fn warn_of_settings(&self) {
        let passed_by = &self.status.settings_passed_by;
        if !passed_by.is_empty() {
            counters::settings_passed_by();
            let (pod, settings) = (&self.record.id, passed_by.join("; "));
            tracing::warn!(pod, settings, "the pod's VM lacks settings left on the node by CNI plugins");
        }
    }

    /// Commits the pod as ready.
    async fn ready(node: &Arc<Node>, record: &Arc<PodRecord>, ready: start::Ready) -> Result<Driver, Failed> {
        let vm = ready.live.vm.clone();
        let vmm = VmmProcess::of_this_boot(vm.pid(), vm.start_time());
        let status = PodStatus {
            stage: PodStage::Ready,
            vmm: Some(vmm),
            ips: ready.ips,
            netns: Some(ready.netns),
            phases: ready.phases,
            versions: Some(ready.versions),
            guest_volumes: ready.keeps.volumes,
            disk_volumes: ready.keeps.disks,
            disk_images: ready.keeps.disk_images,
            host_sockets: ready.keeps.sockets,
            syscall_filters: ready.keeps.filters,
            settings_passed_by: ready.settings_passed_by,
            ..PodStatus::starting()
        };
        match node.records.put_pod_status(&record.id, &status).await {
            Ok(()) => {
                let mut driver = Driver::new(node.clone(), record.clone(), status, Some(ready.live));
                driver.template = ready.template;
                driver.serve_sockets();
                Ok(driver)
            }
            Err(error) => Err(Failed { error, vm: Some(vm) }),
        }
    }

    /// Undoes a failed start. If this fails too, the pod stays listed as unclean, with a driver for its
    /// removal.
    async fn undo_start(
        node: Arc<Node>,
        record: Arc<PodRecord>,
        failed: Failed,
    ) -> (PodError, Option<Driver>) {
        let mut status = PodStatus { stage: PodStage::Undoing, ..PodStatus::starting() };
        if let Some(vm) = &failed.vm {
            status.vmm = Some(VmmProcess::of_this_boot(vm.pid(), vm.start_time()));
        }
        // The undo goes on without the disk: a later start finds the pod in Starting and undoes it as well.
        node.records.settle_pod_status(&record.id, &status).await;
        let undone = undo::undo(&node, &record, failed.vm.as_ref(), status.vmm).await;
        let mut driver = Driver::new(node, record, status, None);
        driver.scratch_gone = undone.scratch_gone;
        match undone.left {
            None => match driver.forget().await {
                Ok(()) => (failed.error, None),
                Err(error) => {
                    driver.status.unclean = Some(error.chain());
                    driver.publish();
                    (failed.error, Some(driver))
                }
            },
            Some(left) => {
                let text = format!("{}; and could not be undone: {left}", failed.error);
                driver.status.message = Some(failed.error.chain());
                driver.status.unclean = Some(left);
                driver.save_status().await;
                driver.publish();
                (failed.error.reworded(text), Some(driver))
            }
        }
    }

    /// Serves until the pod is removed.
    pub(crate) async fn run(mut self) {
        loop {
            self.stop_if_all_ended().await;
            let flow = tokio::select! {
                biased;
                Some(exited) = self.exits.recv() => {
                    self.exited(exited).await;
                    ControlFlow::Continue(())
                }
                report = ended(self.live.clone()) => {
                    self.vm_ended(&report).await;
                    ControlFlow::Continue(())
                }
                () = self.full_disks.changed() => {
                    self.full_disks_changed();
                    ControlFlow::Continue(())
                }
                () = self.awaited_room.due() => {
                    self.grow_into_room().await;
                    ControlFlow::Continue(())
                }
                asked = self.inbox.recv() => match asked {
                    Some(Asked { command, call, waiting }) => {
                        drop(waiting);
                        call.around(self.handle(command)).await
                    }
                    None => ControlFlow::Break(()),
                },
            };
            if flow.is_break() {
                return;
            }
        }
    }

    async fn handle(&mut self, command: Command) -> ControlFlow<()> {
        match command {
            Command::CreateContainer(new, reply) => answer(reply, self.create_container(*new).await),
            Command::StartContainer(id, reply) => answer(reply, self.start_container(&id).await),
            Command::RefuseStart(id, refusal, reply) => {
                answer(reply, self.refuse_start(&id, refusal.into()).await);
            }
            Command::TakeTurn(reply) => answer(reply, Ok(())),
            Command::NoteStopSignal(id) => self.note_stop_signal(&id).await,
            Command::UpdateContainer(id, update, reply) => {
                answer(reply, self.update_container(&id, &update).await);
            }
            Command::UpdatePod(update, reply) => {
                answer(reply, self.update_pod(&update.0, &update.1).await);
            }
            Command::RemoveContainer(id, reply) => answer(reply, self.remove_container(&id).await),
            Command::PowerOff(by, reply) => answer(reply, self.power_off(by).await),
            Command::Stop(reply) => answer(reply, self.stop().await),
            Command::Remove(reply) => {
                let outcome = self.remove().await;
                let gone = outcome.is_ok();
                answer(reply, outcome);
                if gone {
                    return ControlFlow::Break(());
                }
            }
        }
        ControlFlow::Continue(())
    }

    /// The VM and its agent, if the pod is ready.
    fn live(&self) -> Result<Live, PodError> {
        self.live.clone().ok_or_else(|| {
            PodError::new(PodErrorKind::FailedPrecondition, format!("pod {} is not ready", self.record.id))
        })
    }

    /// Commits the status as it is now.
    async fn commit_status(&mut self) -> Result<(), PodError> {
        self.status.capacity = self.capacity.status().clone();
        self.node.records.put_pod_status(&self.record.id, &self.status).await
    }

    /// Settles the current status: for outcomes that stand even if the disk fails.
    async fn save_status(&mut self) {
        self.status.capacity = self.capacity.status().clone();
        self.node.records.settle_pod_status(&self.record.id, &self.status).await;
    }

    /// The pod's current view.
    fn view(&self) -> PodView {
        let (record, status) = (&self.record, &self.status);
        PodView {
            id: record.id.clone(),
            spec: record.spec.clone(),
            state: if status.stage == PodStage::Ready { PodState::Ready } else { PodState::NotReady },
            created_at_ns: record.created_at_ns,
            ips: status.ips.clone(),
            netns: status.netns.clone(),
            ledger: self.ledger(None),
            resources: self.capacity.resources().cloned(),
            overhead: self.capacity.overhead().cloned(),
            vmm_pid: self.live.as_ref().map(|live| live.vm.pid()),
            versions: status.versions.clone(),
            message: status.message.clone(),
            unclean: status.unclean.clone(),
            lost: self.lost,
            settings_passed_by: status.settings_passed_by.clone(),
            full_disks: self.live.as_ref().map_or(0, |_| self.full_disks.count()),
        }
    }

    /// Publishes how the pod is now.
    pub(crate) fn publish(&self) {
        let status = &self.status;
        self.node.roster.publish_pod(PodEntry {
            view: Arc::new(self.view()),
            commands: self.commands.clone(),
            live: self.live.clone(),
            phases: Arc::new(status.phases.clone()),
            has_scratch: !self.scratch_gone,
            recovered: self.recovered.subscribe(),
        });
    }

    /// Publishes how the containers are now.
    fn publish_containers(&self) {
        for id in self.containers.ids() {
            if let Some(container) = self.containers.get(&id) {
                self.node.roster.publish_container(container.entry());
            }
        }
    }
}

/// Resolves when the VM ends; never without a VM.
async fn ended(live: Option<Live>) -> StopReport {
    match live {
        Some(live) => live.vm.stopped().await,
        None => std::future::pending().await,
    }
}

fn answer<T>(reply: Reply<T>, outcome: Result<T, PodError>) {
    // The caller may have gone away.
    let _ = reply.send(outcome);
}
