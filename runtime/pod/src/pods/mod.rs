//! The handle to all pods: finds the driver, asks it, waits.
//!
//! Where to read on: `driver/` changes a pod, `start/` starts one and undoes a start, `recover/` runs when
//! the daemon restarts, `roster/` has the published state.

mod ask;
mod asked;
mod figures;
mod health;
mod power_off;
mod streams;

use std::sync::Arc;
use std::time::Duration;

use runtime_spans::{Carried, always, span};
use runtime_spec::{ContainerSpec, HandlerConfig, LayerLimits, PodSpec, Resources, Shortage, VmBounds};
use tracing::Span;

use self::ask::{ask, detached, recovered, still_recovering};
use crate::capacity::room;
use crate::clock;
use crate::command::{Command, NewContainerSpec, Reply};
use crate::config::{PodsConfig, StartConfig};
use crate::container::{admission, log, stop};
use crate::driver::Driver;
use crate::error::{PodError, PodErrorKind};
use crate::host::memory_events;
use crate::live::Live;
use crate::node::Node;
use crate::record::{ContainerStage, PodRecord};
use crate::roster::events::Events;
use crate::roster::{ContainerEntry, PodEntry, Reservation, Scratch};
use crate::spans;
use crate::spares::{AskedKind, SpareKind};
use crate::view::{ContainerState, ContainerView, PodView};

/// All pods of this node. Cheap to clone. Dropping a call's future does not stop the work.
#[derive(Clone, Debug)]
pub struct Pods {
    node: Arc<Node>,
}

impl Pods {
    /// Opens the store and lists every pod of an earlier daemon. After this has returned, the pods are
    /// recovered, and half-done work is undone. A call about a pod waits for this pod alone.
    ///
    /// # Errors
    /// The store cannot be opened or read. An unrecoverable pod is no error; it is listed as not ready, with
    /// the reason.
    pub async fn open(config: PodsConfig) -> Result<Pods, PodError> {
        crate::counters::register();
        runtime_logs::register_counters();
        let earlier = config.earlier;
        let node = Arc::new(crate::node::open::node(config)?);
        crate::recover::recover(&node, earlier).await?;
        crate::templates::open(&node);
        crate::spares::look(&node);
        crate::spares::networks::begin(&node);
        crate::reclaim::begin(&node);
        crate::guest_clocks::begin(&node);
        Ok(Pods { node })
    }

    /// Starts pods by these rules from now on. Existing pods, and those already starting, keep theirs.
    pub fn set_start(&self, config: StartConfig) {
        self.node.start.set(config);
        crate::templates::begin(&self.node);
        crate::spares::look(&self.node);
        self.node.spares.networks().notify_one();
    }

    /// Ends everything without a pod: the daemon stops. Pods go on without it.
    pub async fn close(&self) {
        let (node, closing) = (&self.node, crate::spares::close(&self.node));
        tokio::join!(closing, crate::templates::close(node));
    }

    /// Starts a pod and returns its id. A call with the same (namespace, name, uid, attempt) joins the first.
    ///
    /// # Errors
    /// The spec is refused, or a phase failed. Then it has been undone, or the text names the leftovers.
    pub async fn run(&self, spec: PodSpec) -> Result<String, PodError> {
        spec.check()?;
        let rules = self.node.start.now();
        rules.check_walls()?;
        let handler = rules.find(&spec.runtime_handler)?;
        let reserving = span!("reserve").entered();
        let bounds = self.fit(&spec, handler, rules.strict_cgroups)?;
        let scratch_bytes = runtime_spec::scratch_bytes(&spec.annotations, handler.scratch_bytes)?;
        let layer_limits = LayerLimits::of(&spec.annotations, handler.writable_layer_bytes)?;
        let scratch = Scratch {
            handler: handler.name.clone(),
            bytes: scratch_bytes,
            sum_max: handler.scratch_sum_bytes,
        };
        let kinds = SpareKind::all_of(handler, &spec.namespace, &bounds, scratch_bytes);
        // A template for one pod of its size alone is not worth its memory.
        let may_wait = |kind: &SpareKind| kind.shape().is_none_or(|shape| self.node.templates.knows(shape));
        let asked: Vec<_> =
            kinds.into_iter().map(|kind| AskedKind { counts: may_wait(&kind), kind }).collect();
        let mut spare = None;
        let reservation = self.node.roster.reserve(&spec, scratch, || {
            spare = self.node.spares.claim(&asked);
            spare.as_ref().map_or_else(clock::new_id, |spare| spare.id.clone())
        })?;
        drop(reserving);
        let (mut outcome, waiting) = match reservation {
            Reservation::Joined(outcome) => (outcome, span!("wait for the same pod's start")),
            Reservation::New(id, sender, outcome) => {
                let created_at_ns = clock::now_after(self.node.roster.newest(&spec));
                let handler = handler.name.clone();
                let memory_events_before =
                    memory_events::before(&self.node.places.cgroup_root, &spec.cgroup_parent);
                let record = PodRecord {
                    id,
                    spec,
                    handler,
                    bounds,
                    scratch_bytes,
                    layer_limits,
                    created_at_ns,
                    memory_events_before,
                };
                spans::of_pod(&record.id);
                tokio::spawn(Driver::start(self.node.clone(), record, spare, sender, Carried::here()));
                // The driver's steps are the call's own.
                (outcome, Span::none())
            }
        };
        match always(waiting, outcome.wait_for(Option::is_some)).await {
            Ok(outcome) => outcome.clone().expect("waited for it"),
            Err(_) => Err(PodError::internal("starting the pod: its driver is gone")),
        }
    }

    /// The bounds of a new pod's VM. It must fit into the pod's cgroup.
    fn fit(&self, spec: &PodSpec, handler: &HandlerConfig, strict: bool) -> Result<VmBounds, PodError> {
        let bounds = VmBounds::of(spec, handler)?;
        let Some(limit) = room::limit(&self.node, &spec.cgroup_parent) else { return Ok(bounds) };
        if let Some(shortage) = Shortage::of(spec, handler, limit.bytes) {
            let short = room::describe(&shortage, &limit);
            if strict {
                return Err(PodError::new(PodErrorKind::InvalidArgument, short));
            }
            tracing::warn!(namespace = spec.namespace, pod = spec.name, short, "a pod's VM is made to fit");
        }
        Ok(bounds.within(Some(limit.bytes)))
    }

    /// Stops a pod: kills its containers and its VM, and removes its network. The call is idempotent; unknown
    /// ids are fine.
    ///
    /// # Errors
    /// Something is left. The next stop or remove tries again.
    pub async fn stop(&self, pod_id: &str) -> Result<(), PodError> {
        self.ask_unless_gone(self.meant_pod(pod_id)?, Command::Stop).await
    }

    /// Stops a pod, and forgets it and its containers. The call is idempotent; unknown ids are fine.
    ///
    /// # Errors
    /// See [`Pods::stop`]; the pod then stays listed.
    pub async fn remove(&self, pod_id: &str) -> Result<(), PodError> {
        self.ask_unless_gone(self.meant_pod(pod_id)?, Command::Remove).await
    }

    /// Stops and forgets every pod, in parallel, including those starting now.
    ///
    /// # Errors
    /// See [`Pods::remove`]; all others are gone then.
    pub async fn remove_all(&self) -> Result<(), PodError> {
        let starting = self.node.roster.outcomes().into_iter().map(async |mut outcome| {
            // A failed start has been undone, or its pod is listed.
            let _ = outcome.wait_for(Option::is_some).await;
        });
        futures::future::join_all(starting).await;
        let pods = self.pods();
        let removing = pods.iter().map(|pod| self.remove(&pod.id));
        futures::future::join_all(removing).await.into_iter().collect()
    }

    /// Finds a pod by its id, or by a unique beginning of it. All calls here accept such ids.
    pub fn pod(&self, pod_id: &str) -> Option<Arc<PodView>> {
        self.node.roster.pod(pod_id).map(|entry| entry.view)
    }

    /// Finds a pod and its current containers, oldest first.
    pub fn pod_with_containers(&self, pod_id: &str) -> Option<(Arc<PodView>, Vec<Arc<ContainerView>>)> {
        self.node.roster.pod_with_containers(pod_id)
    }

    /// All pods, oldest first.
    pub fn pods(&self) -> Vec<Arc<PodView>> {
        self.node.roster.pods()
    }

    /// Ids of all pods on record, including starting ones not listed yet, and of pooled VMs.
    pub fn ids(&self) -> Vec<String> {
        let mut ids = self.node.unclaimed.all();
        ids.extend(self.node.roster.pod_ids());
        ids
    }

    /// Ids of the pods being started. They are in no list yet.
    pub fn starting(&self) -> Vec<String> {
        self.node.roster.starting()
    }

    /// Names of the unreadable values in quarantine, as of this daemon's start.
    pub fn quarantined(&self) -> Vec<String> {
        self.node.records.quarantined()
    }

    /// Whether outcomes wait for a failing disk. If the daemon is killed now, its successor finds those pods
    /// in an earlier state.
    pub fn outcomes_wait(&self) -> bool {
        self.node.records.outcomes_wait()
    }

    /// Builds a container, holds it before its program, and returns its id.
    ///
    /// # Errors
    /// No such pod or image, the pod is not ready, the name is taken, the spec is refused, or the guest
    /// cannot build it.
    pub async fn create_container(&self, pod_id: &str, spec: ContainerSpec) -> Result<String, PodError> {
        let entry = self.pod_entry(pod_id)?;
        spans::of_pod(&entry.view.id);
        recovered(&entry).await?;
        let asking = self.node.plugins.begin();
        if !asking.is_alone() {
            return detached(asked::create_container(self.node.clone(), entry, spec, asking)).await;
        }
        let new = Box::new(NewContainerSpec { id: None, spec, asking: Some(asking) });
        ask(&entry, |reply| Command::CreateContainer(new, reply)).await
    }

    /// Lets a created container's program run.
    ///
    /// # Errors
    /// The container was started before. Or plugins refuse, or its program cannot be started; then the
    /// container is `Exited`.
    pub async fn start_container(&self, container_id: &str) -> Result<(), PodError> {
        let container = self.container_entry(container_id)?.view;
        let entry = self.pod_entry(&container.pod_id)?;
        if self.node.plugins.hears() {
            return detached(asked::start_container(self.node.clone(), entry, container)).await;
        }
        ask(&entry, |reply| Command::StartContainer(container.id.clone(), reply)).await
    }

    /// Changes the limits of a container not yet exited. Fields unset in `update` stay. The VM grows first if
    /// necessary.
    ///
    /// # Errors
    /// The limits make no sense, the pod's VM cannot hold them, or the guest refuses; then all is as it was.
    pub async fn update_container(&self, container_id: &str, update: Resources) -> Result<(), PodError> {
        let container = self.container_entry(container_id)?.view;
        let entry = self.pod_entry(&container.pod_id)?;
        if self.node.plugins.hears() {
            return detached(asked::update_container(self.node.clone(), entry, container, update)).await;
        }
        self.limit_container(container_id, update).await
    }

    /// Changes the limits of a container as [`Pods::update_container`] does, without asking plugins: a plugin
    /// is the caller.
    ///
    /// # Errors
    /// See [`Pods::update_container`].
    pub async fn limit_container(&self, container_id: &str, update: Resources) -> Result<(), PodError> {
        let container = self.container_entry(container_id)?.view;
        let entry = self.pod_entry(&container.pod_id)?;
        ask(&entry, |reply| Command::UpdateContainer(container.id.clone(), Box::new(update), reply)).await
    }

    /// Changes the pod's resources: its VM grows, or gives back memory as far as it can.
    ///
    /// # Errors
    /// The VM was built for less, or the guest does not take it.
    pub async fn update_pod(
        &self,
        pod_id: &str,
        resources: Resources,
        overhead: Resources,
    ) -> Result<(), PodError> {
        let entry = self.pod_entry(pod_id)?;
        let update = Box::new((resources, overhead));
        if self.node.plugins.hears() {
            return detached(asked::update_pod(self.node.clone(), entry, update)).await;
        }
        ask(&entry, |reply| Command::UpdatePod(update, reply)).await
    }

    /// Asks a container to end, kills it after `grace`, and returns when it has ended. The call is
    /// idempotent; unknown ids are fine. A container asked before is not asked again: only the grace is new.
    ///
    /// # Errors
    /// The container does not end even after it was killed.
    pub async fn stop_container(&self, container_id: &str, grace: Duration) -> Result<(), PodError> {
        let Some(container) = self.node.roster.container(container_id) else {
            return self.node.roster.no_container_meant(container_id);
        };
        spans::of_pod(&container.view.pod_id);
        spans::of_container(&container.view.id);
        if let Some(pod) = self.node.roster.pod(&container.view.pod_id) {
            recovered(&pod).await?;
            if container.view.state == ContainerState::Created {
                // It may be starting now. Once the driver takes this up, it has published the outcome.
                self.ask_unless_gone(Some(pod), Command::TakeTurn).await?;
            }
        }
        let Some(container) = self.node.roster.container(&container.view.id) else { return Ok(()) };
        let pod = self.node.roster.pod(&container.view.pod_id);
        detached(stop::stop(pod, container, grace)).await
    }

    /// Kills and forgets a container; its log stays. The call is idempotent; unknown ids are fine.
    ///
    /// # Errors
    /// The guest cannot remove it.
    pub async fn remove_container(&self, container_id: &str) -> Result<(), PodError> {
        let Some(container) = self.node.roster.container(container_id).map(|entry| entry.view) else {
            return self.node.roster.no_container_meant(container_id);
        };
        self.stop_container(&container.id, Duration::ZERO).await?;
        let id = container.id.clone();
        let pod = self.node.roster.pod(&container.pod_id);
        self.ask_unless_gone(pod, |reply| Command::RemoveContainer(id, reply)).await
    }

    /// Finds a container by its id, or by a unique beginning of it. All calls here accept such ids.
    pub fn container(&self, container_id: &str) -> Option<Arc<ContainerView>> {
        self.node.roster.container(container_id).map(|entry| entry.view)
    }

    /// Listens to events of pods and containers from now on.
    pub fn events(&self) -> Events {
        self.node.roster.listen()
    }

    /// All containers, oldest first.
    pub fn containers(&self) -> Vec<Arc<ContainerView>> {
        self.node.roster.containers()
    }

    /// Whether a command could run in the container now, or a client attach to it.
    ///
    /// # Errors
    /// There is no such container, or it does not run.
    pub fn check_running(&self, container_id: &str) -> Result<(), PodError> {
        let container = self.container_entry(container_id)?;
        let stage = match container.view.state {
            ContainerState::Running => ContainerStage::Running,
            _ => ContainerStage::Exited,
        };
        admission::exec(container_id, stage)
    }

    /// Continues the log in a new file, after the old one was renamed.
    ///
    /// # Errors
    /// No such container, it has ended, or the file cannot be made.
    pub async fn reopen_log(&self, container_id: &str) -> Result<(), PodError> {
        let container = self.container_entry(container_id)?;
        admission::reopen_log(&container.view.id, container.view.state)?;
        log::reopen(&container.output.log).await
    }

    fn pod_entry(&self, pod_id: &str) -> Result<PodEntry, PodError> {
        let entry = self.node.roster.pod(pod_id);
        entry.ok_or_else(|| PodError::new(PodErrorKind::NotFound, format!("no pod {pod_id}")))
    }

    fn container_entry(&self, container_id: &str) -> Result<ContainerEntry, PodError> {
        let entry = self.node.roster.container(container_id);
        if let Some(entry) = &entry {
            spans::of_pod(&entry.view.pod_id);
            spans::of_container(&entry.view.id);
        }
        entry.ok_or_else(|| PodError::new(PodErrorKind::NotFound, format!("no container {container_id}")))
    }

    /// The pod's VM, once the pod is recovered.
    async fn live(&self, pod_id: &str) -> Result<Live, PodError> {
        recovered(&self.pod_entry(pod_id)?).await?;
        self.live_now(pod_id)
    }

    /// The pod's VM, if already known.
    fn live_now(&self, pod_id: &str) -> Result<Live, PodError> {
        let entry = self.pod_entry(pod_id)?;
        match entry.live {
            Some(live) => Ok(live),
            None if !*entry.recovered.borrow() => Err(still_recovering(&entry)),
            None => {
                let text = format!("pod {pod_id} has no running VM");
                Err(PodError::new(PodErrorKind::FailedPrecondition, text))
            }
        }
    }

    /// The pod, if there is one.
    fn meant_pod(&self, pod_id: &str) -> Result<Option<PodEntry>, PodError> {
        match self.node.roster.pod(pod_id) {
            Some(entry) => Ok(Some(entry)),
            None => self.node.roster.no_pod_meant(pod_id).map(|()| None),
        }
    }

    /// Asks the pod's driver. A missing pod is no error.
    async fn ask_unless_gone(
        &self,
        pod: Option<PodEntry>,
        command: impl FnOnce(Reply<()>) -> Command,
    ) -> Result<(), PodError> {
        let Some(entry) = pod else { return Ok(()) };
        match ask(&entry, command).await {
            Err(_) if self.node.roster.pod(&entry.view.id).is_none() => Ok(()),
            outcome => outcome,
        }
    }

    #[cfg(test)]
    pub(crate) fn on(node: Arc<Node>) -> Pods {
        Pods { node }
    }
}
