//! The handle to all pods: finds the driver, asks it, waits.
//!
//! Where to read on: `driver/mod.rs` for what changes a pod, `start/mod.rs` for how one starts,
//! `undo.rs` for how it goes, `recover.rs` for what a restarted daemon does, `roster.rs` for what is read.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use runtime_spec::{ContainerSpec, ExecSpec, PodSpec, Resources, VmBounds};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::oneshot;

use crate::clock;
use crate::command::{Command, Reply};
use crate::config::PodsConfig;
use crate::container::attach::{AttachRequest, attach};
use crate::container::{admission, stop};
use crate::driver::Driver;
use crate::error::{PodError, PodErrorKind};
use crate::host::scratch::{self, ScratchUsage};
use crate::io::exec::Exec;
use crate::io::streams::ProcessStreams;
use crate::live::Live;
use crate::node::Node;
use crate::record::{ContainerStage, PodRecord};
use crate::roster::events::Events;
use crate::roster::{ContainerEntry, PodEntry, Reservation};
use crate::usage::{self, PodUsage, UsageSource};
use crate::view::{ContainerState, ContainerView, ExecOutput, GuestMemory, Phase, PodView, VmReport};

/// How long the agent may take to tell its memory, beside numbers that need no agent.
const STATS_WITHIN: Duration = Duration::from_secs(2);

/// All pods of this node. Cheap to clone. Dropping a call's future does not stop the work.
#[derive(Clone, Debug)]
pub struct Pods {
    node: Arc<Node>,
}

impl Pods {
    /// Opens the store and finds every pod of an earlier daemon again, or undoes what it left half done.
    ///
    /// # Errors
    /// The store cannot be opened or read. A pod that cannot be recovered is no error; it is listed as
    /// not ready, with the reason.
    pub async fn open(config: PodsConfig) -> Result<Pods, PodError> {
        let node = Arc::new(crate::node::open::node(config)?);
        crate::recover::recover(&node).await?;
        Ok(Pods { node })
    }

    /// Starts a pod and gives its id. The same (namespace, name, uid, attempt) joins the first call.
    ///
    /// # Errors
    /// The spec is refused, or a phase failed; then it has been undone, or the text says what is left.
    pub async fn run(&self, spec: PodSpec) -> Result<String, PodError> {
        spec.check()?;
        let handler = self.node.handlers.find(&spec.runtime_handler)?;
        let (bounds, scratch_bytes) = (VmBounds::of(&spec, handler)?, handler.scratch_bytes);
        let mut outcome = match self.node.roster.reserve(&spec)? {
            Reservation::Joined(outcome) => outcome,
            Reservation::New(id, reported, outcome) => {
                let record = PodRecord { id, spec, bounds, scratch_bytes, created_at_ns: clock::now_ns() };
                tokio::spawn(Driver::start(self.node.clone(), record, reported));
                outcome
            }
        };
        match outcome.wait_for(Option::is_some).await {
            Ok(outcome) => outcome.clone().expect("waited for it"),
            Err(_) => Err(PodError::internal("starting the pod: its driver is gone")),
        }
    }

    /// Kills its containers and its machine, takes its network down. Idempotent; unknown ids are fine.
    ///
    /// # Errors
    /// What is left, which the next stop or remove tries again.
    pub async fn stop(&self, pod_id: &str) -> Result<(), PodError> {
        self.ask_unless_gone(self.meant_pod(pod_id)?, Command::Stop).await
    }

    /// Stops and forgets it and its containers. Idempotent; unknown ids are fine.
    ///
    /// # Errors
    /// As [`Pods::stop`]; the pod then stays listed.
    pub async fn remove(&self, pod_id: &str) -> Result<(), PodError> {
        self.ask_unless_gone(self.meant_pod(pod_id)?, Command::Remove).await
    }

    /// A pod by its id, or by a beginning of it that is no other's. All calls here take such ids.
    pub fn pod(&self, pod_id: &str) -> Option<Arc<PodView>> {
        self.node.roster.pod(pod_id).map(|entry| entry.view)
    }

    /// The same, and its containers of that moment, oldest first.
    pub fn pod_with_containers(&self, pod_id: &str) -> Option<(Arc<PodView>, Vec<Arc<ContainerView>>)> {
        self.node.roster.pod_with_containers(pod_id)
    }

    /// All pods, oldest first.
    pub fn pods(&self) -> Vec<Arc<PodView>> {
        self.node.roster.pods()
    }

    /// Builds a container and holds it before its program; gives its id.
    ///
    /// # Errors
    /// No such pod or image, the pod is not ready, the name is taken, the spec is refused, or the guest
    /// cannot build it.
    pub async fn create_container(&self, pod_id: &str, spec: ContainerSpec) -> Result<String, PodError> {
        let entry = self.pod_entry(pod_id)?;
        ask(&entry, |reply| Command::CreateContainer(Box::new(spec), reply)).await
    }

    /// Lets a created container's program run.
    ///
    /// # Errors
    /// It was started before, or its program cannot be started; then it is `Exited`, `StartError`.
    pub async fn start_container(&self, container_id: &str) -> Result<(), PodError> {
        let container = self.container_entry(container_id)?.view;
        let entry = self.pod_entry(&container.pod_id)?;
        ask(&entry, |reply| Command::StartContainer(container.id.clone(), reply)).await
    }

    /// Changes the limits of a container that has not ended; what `update` leaves unset stays. The machine
    /// grows first where it must.
    ///
    /// # Errors
    /// The limits make no sense, the pod's machine cannot hold them, or the guest refuses; then all is as
    /// it was.
    pub async fn update_container(&self, container_id: &str, update: Resources) -> Result<(), PodError> {
        let entry = self.pod_entry(&self.container_entry(container_id)?.view.pod_id)?;
        let id = container_id.to_owned();
        ask(&entry, |reply| Command::UpdateContainer(id, Box::new(update), reply)).await
    }

    /// Changes what the pod may use: its machine grows, or gives back what it can.
    ///
    /// # Errors
    /// It is more than the machine was built for, or the guest does not take it.
    pub async fn update_pod(
        &self,
        pod_id: &str,
        resources: Resources,
        overhead: Resources,
    ) -> Result<(), PodError> {
        let entry = self.pod_entry(pod_id)?;
        let update = Box::new((resources, overhead));
        ask(&entry, |reply| Command::UpdatePod(update, reply)).await
    }

    /// Asks it to end, and kills it after `grace`. Returns when it has ended. Idempotent; unknown ids are fine.
    ///
    /// # Errors
    /// It does not end even after it was killed.
    pub async fn stop_container(&self, container_id: &str, grace: Duration) -> Result<(), PodError> {
        let Some(container) = self.node.roster.container(container_id) else {
            return self.node.roster.no_container_meant(container_id);
        };
        let live = self.node.roster.pod(&container.view.pod_id).and_then(|entry| entry.live);
        detached(stop::stop(live, container, grace)).await
    }

    /// Kills and forgets it; its log stays. Idempotent; unknown ids are fine.
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

    /// A container by its id, or by a beginning of it that is no other's. All calls here take such ids.
    pub fn container(&self, container_id: &str) -> Option<Arc<ContainerView>> {
        self.node.roster.container(container_id).map(|entry| entry.view)
    }

    /// What happens to pods and containers from now on.
    pub fn events(&self) -> Events {
        self.node.roster.listen()
    }

    /// All containers, oldest first.
    pub fn containers(&self) -> Vec<Arc<ContainerView>> {
        self.node.roster.containers()
    }

    /// Runs a command in a running container. Without a time-out it may run for ever.
    ///
    /// # Errors
    /// The container does not run, the command cannot be started, or it took too long and was killed.
    pub async fn exec_sync(
        &self,
        container_id: &str,
        command: Vec<String>,
        timeout: Option<Duration>,
    ) -> Result<ExecOutput, PodError> {
        let exec = self.new_exec(container_id, ExecSpec { command, tty: false, stdin: false })?;
        // Detached, so that a caller who goes away does not leave a command beyond its time-out.
        detached(exec.run(timeout)).await
    }

    /// Starts a command in a running container and gives its streams. It goes on until its end is waited
    /// for, or its client is said to have gone.
    ///
    /// # Errors
    /// The container does not run, or the command cannot be started.
    pub async fn exec(&self, container_id: &str, spec: ExecSpec) -> Result<ProcessStreams, PodError> {
        detached(self.new_exec(container_id, spec)?.streams()).await
    }

    /// Whether a command, or a client, could come to the container now.
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

    /// Gives a running container's streams, output from now on.
    ///
    /// # Errors
    /// The container does not run, or has no stdin and one is wanted.
    pub async fn attach(
        &self,
        container_id: &str,
        request: AttachRequest,
    ) -> Result<ProcessStreams, PodError> {
        self.check_running(container_id)?;
        let container = self.container_entry(container_id)?;
        attach(&self.live(&container.view.pod_id)?, &container, request).await
    }

    /// Connects to a TCP port inside the pod and carries bytes both ways, each way to its own end.
    ///
    /// # Errors
    /// The pod does not run, or nobody answers on the port. A connection that breaks later is no error.
    pub async fn forward<C>(&self, pod_id: &str, port: u16, mut client: C) -> Result<(), PodError>
    where
        C: AsyncRead + AsyncWrite + Send + Unpin,
    {
        let live = self.live(pod_id)?;
        let mut pod = live.call("connecting to the port", live.agent.port(port)).await?;
        if let Err(error) = tokio::io::copy_bidirectional(&mut client, &mut pod).await {
            tracing::debug!(pod_id, port, %error, "a forwarded connection broke off");
        }
        Ok(())
    }

    /// Whether a pod's ports could be connected to now.
    ///
    /// # Errors
    /// There is no such pod, or it does not run.
    pub fn check_ready(&self, pod_id: &str) -> Result<(), PodError> {
        self.live(pod_id).map(drop)
    }

    fn new_exec(&self, container_id: &str, spec: ExecSpec) -> Result<Exec, PodError> {
        if spec.command.is_empty() {
            return Err(PodError::new(PodErrorKind::InvalidArgument, "cmd: is empty"));
        }
        self.check_running(container_id)?;
        let container = self.container_entry(container_id)?;
        let live = self.live(&container.view.pod_id)?;
        let id = container.view.id.clone();
        Ok(Exec { live, container_id: id, process: container.process, spec })
    }

    /// Goes on logging in a new file, after the old one was renamed.
    ///
    /// # Errors
    /// No such container, it has ended, or the file cannot be made.
    pub async fn reopen_log(&self, container_id: &str) -> Result<(), PodError> {
        let container = self.container_entry(container_id)?;
        admission::reopen_log(&container.view.id, container.view.state)?;
        let reopened = container.output.log.reopen().await;
        reopened.map_err(|error| PodError::internal("reopening the log").because(error))
    }

    /// The measured steps of the pod's start.
    ///
    /// # Errors
    /// No such pod.
    pub fn phases(&self, pod_id: &str) -> Result<Vec<Phase>, PodError> {
        Ok(self.pod_entry(pod_id)?.phases.to_vec())
    }

    /// What its machine costs.
    ///
    /// # Errors
    /// No such pod, or its machine is gone.
    pub async fn vm_stats(&self, pod_id: &str) -> Result<VmReport, PodError> {
        let live = self.live(pod_id)?;
        let stats = live.call("asking the VM for its counters", live.vm.stats()).await?;
        let asked = tokio::time::timeout(STATS_WITHIN, live.agent.stats()).await;
        let guest = asked.ok().and_then(Result::ok).map(|reported| GuestMemory {
            total: reported.memory_total,
            available: reported.memory_available,
            free: reported.memory_free,
            agent_resident: reported.agent_resident,
            processes: reported.processes,
        });
        Ok(VmReport { vmm_pid: live.vm.pid(), stats, guest })
    }

    /// What it has used.
    ///
    /// # Errors
    /// No such pod, or its machine is gone. A guest that does not answer is no error.
    pub async fn usage(&self, pod_id: &str) -> Result<PodUsage, PodError> {
        let live = self.live(pod_id)?;
        let entry = self.pod_entry(pod_id)?;
        let containers = self.node.roster.containers();
        let of_pod = containers.iter().filter(|one| one.pod_id == entry.view.id);
        usage::read(UsageSource {
            pod: &entry.view,
            containers: of_pod.map(|one| one.id.clone()).collect(),
            cgroup_root: &self.node.places.cgroup_root,
            vmm_pid: live.vm.pid(),
            agent: &live.agent,
            meter: &live.meter,
        })
        .await
    }

    /// The same of several, side by side; those without a machine are left out. A guest that hangs keeps
    /// the answer waiting for a moment only.
    pub async fn usages(&self, pod_ids: impl IntoIterator<Item = &str>) -> Vec<PodUsage> {
        let reading = pod_ids.into_iter().map(|id| self.usage(id));
        futures::future::join_all(reading).await.into_iter().flatten().collect()
    }

    /// What the pods' scratch disks take of the host's file system. Blocks on the disk.
    pub fn scratch_usage(&self) -> ScratchUsage {
        scratch::usage(&self.node.places.state_dirs())
    }

    /// Where the scratch disks are.
    pub fn scratch_dir(&self) -> PathBuf {
        self.node.places.state_dirs()
    }

    /// The last 64 KiB of its guest's console.
    ///
    /// # Errors
    /// No such pod, or its machine is gone.
    pub async fn console(&self, pod_id: &str) -> Result<String, PodError> {
        let live = self.live(pod_id)?;
        live.call("asking the VM for its console", live.vm.console()).await
    }

    fn pod_entry(&self, pod_id: &str) -> Result<PodEntry, PodError> {
        let entry = self.node.roster.pod(pod_id);
        entry.ok_or_else(|| PodError::new(PodErrorKind::NotFound, format!("no pod {pod_id}")))
    }

    fn container_entry(&self, container_id: &str) -> Result<ContainerEntry, PodError> {
        let entry = self.node.roster.container(container_id);
        entry.ok_or_else(|| PodError::new(PodErrorKind::NotFound, format!("no container {container_id}")))
    }

    fn live(&self, pod_id: &str) -> Result<Live, PodError> {
        self.pod_entry(pod_id)?.live.ok_or_else(|| {
            PodError::new(PodErrorKind::FailedPrecondition, format!("pod {pod_id} has no running VM"))
        })
    }

    /// The pod, if there is one.
    fn meant_pod(&self, pod_id: &str) -> Result<Option<PodEntry>, PodError> {
        match self.node.roster.pod(pod_id) {
            Some(entry) => Ok(Some(entry)),
            None => self.node.roster.no_pod_meant(pod_id).map(|()| None),
        }
    }

    /// Asks the pod's driver; a pod that is gone, before or meanwhile, is as wanted.
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

/// Asks a driver and waits for its answer.
async fn ask<T>(entry: &PodEntry, command: impl FnOnce(Reply<T>) -> Command) -> Result<T, PodError> {
    let gone = || PodError::new(PodErrorKind::NotFound, format!("no pod {}", entry.view.id));
    let (reply, answer) = oneshot::channel();
    entry.commands.send(command(reply)).await.map_err(|_| gone())?;
    answer.await.map_err(|_| gone())?
}

/// Runs to its end even if the caller goes away.
async fn detached<T: Send + 'static>(
    work: impl Future<Output = Result<T, PodError>> + Send + 'static,
) -> Result<T, PodError> {
    match tokio::spawn(work).await {
        Ok(outcome) => outcome,
        Err(error) => Err(PodError::internal("a task of the daemon failed").because(error)),
    }
}
